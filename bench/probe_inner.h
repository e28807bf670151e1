// Included by probe_*.cc after a kernels/cpu/simd_*.h, inside an unnamed namespace.
#pragma once

float read_all(const std::byte* p, std::size_t bytes) {
  Simd::V sum[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) sum[i] = Simd::zero();
  for (std::size_t at = 0; at + 512 <= bytes; at += 512) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      Simd::prefetch_near(p + at + i * 64 + 2048);
      sum[i] = Simd::add(sum[i], Simd::load(reinterpret_cast<const float*>(p + at + i * 64)));
    }
  }
#pragma GCC unroll 8
  for (int i = 1; i < 8; ++i) sum[0] = Simd::add(sum[0], sum[i]);
  return Simd::lane_sum(sum[0]);
}

volatile float sink;

// Operands come from memory the compiler cannot see into, and every chain starts from its own
// numbers: chains that were equal would be worked out once.
template <class Dot, int kChains>
double peak(std::int64_t n, double operations) {
  alignas(64) std::byte weights[64], activations[64];
  alignas(64) float starts[kChains][16];
  for (int i = 0; i < 64; ++i)
    weights[i] = activations[i] = static_cast<std::byte>(i % 2 == 1 ? 0x3e : 0x10);
  for (int i = 0; i < kChains; ++i)
    for (int k = 0; k < 16; ++k) starts[i][k] = static_cast<float>(i);
  asm volatile("" : : "r"(weights), "r"(activations), "r"(starts) : "memory");
  const typename Dot::W w = Dot::weights(weights);
  const typename Dot::A a = Dot::activation(activations);
  typename Dot::Acc acc[kChains];
#pragma GCC unroll 24
  for (int i = 0; i < kChains; ++i) acc[i] = Dot::start(starts[i]);
  for (std::int64_t round = 0; round < n; ++round)
#pragma GCC unroll 24
    for (int i = 0; i < kChains; ++i) acc[i] = Dot::mac(acc[i], w, a);
  alignas(64) float out[16];
#pragma GCC unroll 24
  for (int i = 0; i < kChains; ++i) {
    Dot::finish(out, acc[i]);
    sink = out[0];
  }
  return static_cast<double>(n) * kChains * operations;
}

double peak_f32(std::int64_t n) { return peak<DotF32, kProbeChains>(n, 32); }
double peak_bf16(std::int64_t n) { return peak<DotBf16, kProbeChains>(n, 64); }
double peak_i8(std::int64_t n) { return peak<DotI8, kProbeChains>(n, 128); }
