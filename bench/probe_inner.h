// Included by probe_*.cc after a kernels/cpu/simd_*.h, inside an unnamed namespace.
#pragma once

// Four parts at once: with AVX2, memory gave several streams faster than one after the other. On
// other instruction sets it was not compared.
float read_all(const std::byte* p, std::size_t bytes) {
  constexpr std::size_t kStreams = 4, kAtOnce = 128, kAhead = 512;
  const std::size_t part = bytes / kStreams / kAtOnce * kAtOnce;
  Simd::V sum[2 * kStreams];
#pragma GCC unroll 8
  for (Simd::V& one : sum) one = Simd::zero();
  for (std::size_t at = 0; at < part; at += kAtOnce)
#pragma GCC unroll 4
    for (std::size_t stream = 0; stream < kStreams; ++stream)
#pragma GCC unroll 2
      for (std::size_t i = 0; i < 2; ++i) {
        const std::byte* line = p + stream * part + at + i * kLine;
        Simd::prefetch_near(line + kAhead);
        Simd::V& one = sum[2 * stream + i];
        one = Simd::add(one, Simd::load(reinterpret_cast<const float*>(line)));
      }
#pragma GCC unroll 8
  for (std::size_t i = 1; i < 2 * kStreams; ++i) sum[0] = Simd::add(sum[0], sum[i]);
  return Simd::lane_sum(sum[0]);
}

template <class Dot>
FT_INLINE typename Dot::Acc sums_from(const float* sums) {
  if constexpr (is_integer(Dot::kActivation))
    return Dot::begin(static_cast<std::int32_t>(sums[0]));
  else
    return Dot::start(sums);
}

template <class Dot>
FT_INLINE void keep(const typename Dot::Acc& acc, float* sums) {
  if constexpr (is_integer(Dot::kActivation))
    Dot::add_to(sums, acc, 1.0f, false);
  else
    Dot::finish(sums, acc);
}

// Operands come from memory the compiler cannot see into and may have changed in every round, each
// chain has its own pair of operands and its own start, and every output is kept: else the compiler
// works out once what is equal, and drops the half of a sum that is not read. As in a tile, chains
// that are neighbours share an activation: a load for each product would be the limit.
template <class Dot, int kChains>
double peak(std::int64_t n, double operations) {
  static_assert(kChains % kProbeColumns == 0);
  alignas(64) std::byte weights[kProbeColumns][64], activations[kChains][16];
  alignas(64) float sums[kChains][Dot::kOutputs];
  for (auto& column : weights)
    for (int i = 0; i < 64; ++i) column[i] = static_cast<std::byte>(i % 2 == 1 ? 0x3e : 0x10);
  for (int i = 0; i < kChains; ++i) {
    for (int k = 0; k < 16; ++k) activations[i][k] = weights[0][k];
    for (int k = 0; k < Dot::kOutputs; ++k) sums[i][k] = static_cast<float>(i);
  }
  asm volatile("" : : "r"(weights), "r"(sums) : "memory");
  typename Dot::W w[Dot::kParts][kProbeColumns];
#pragma GCC unroll 2
  for (int part = 0; part < Dot::kParts; ++part)
#pragma GCC unroll 4
    for (int b = 0; b < kProbeColumns; ++b) w[part][b] = Dot::weights(weights[b], part);
  typename Dot::Acc acc[kChains];
#pragma GCC unroll 24
  for (int i = 0; i < kChains; ++i) acc[i] = sums_from<Dot>(sums[i]);
  for (std::int64_t round = 0; round < n; ++round) {
    asm volatile("" : : "r"(activations) : "memory");
#pragma GCC unroll 2
    for (int part = 0; part < Dot::kParts; ++part)
#pragma GCC unroll 24
      for (int i = 0; i < kChains; ++i)
        acc[i] = Dot::mac(acc[i], w[part][i % kProbeColumns],
                          Dot::activation(activations[i / kProbeColumns], part));
  }
#pragma GCC unroll 24
  for (int i = 0; i < kChains; ++i) keep<Dot>(acc[i], sums[i]);
  asm volatile("" : : "r"(sums) : "memory");
  return static_cast<double>(n) * kChains * operations;
}

template <class Dot>
constexpr double operations_of(int k_per_step) {
  return 2.0 * Dot::kOutputs * k_per_step;
}

double peak_f32(std::int64_t n) { return peak<DotF32, kProbeChains>(n, operations_of<DotF32>(1)); }
double peak_bf16(std::int64_t n) {
  return peak<DotBf16, kProbeChains>(n, operations_of<DotBf16>(2));
}
double peak_i8(std::int64_t n) { return peak<DotI8, kProbeChains>(n, operations_of<DotI8>(4)); }
