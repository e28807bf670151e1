// Tiles of the matrix product: up to six rows against one panel of 64 outputs. Every output is one
// chain of additions along k; the chain is cut into chunks by passing accumulators through c, which
// changes no bit. Included by isa_*.cc.
#pragma once

// A Dot multiplies one column, kOutputs outputs side by side, by one step of k. Where kParts is 2,
// by one of the step's two values of k at a time, so that only that one's weights are unpacked.
// columns_for(rows): how many columns' sums a tile keeps in registers.
struct DotF32 {
  static constexpr Activation kActivation = Activation::kF32;
  static constexpr int kOutputs = 16, kParts = 1;
  static constexpr int columns_for(int rows) { return Simd::columns_for(rows); }
  using Acc = Simd::V;
  using W = Simd::V;
  using A = Simd::V;
  FT_INLINE W weights(const std::byte* p, int) {
    return Simd::load(reinterpret_cast<const float*>(p));
  }
  FT_INLINE A activation(const std::byte* p, int) {
    return Simd::set1(*reinterpret_cast<const float*>(p));
  }
  FT_INLINE Acc mac(const Acc& c, const W& w, const A& a) { return Simd::fma(w, a, c); }
  FT_INLINE Acc start(const float* c) { return Simd::load(c); }
  FT_INLINE void finish(float* c, const Acc& acc) { Simd::store(c, acc); }
  FT_INLINE Acc zero() { return Simd::zero(); }
};

// Two values of k per 64 bytes: sixteen outputs of the first, then of the second.
struct DotF16 : DotF32 {
  static constexpr int kParts = 2;
  FT_INLINE W weights(const std::byte* p, int part) {
    return Simd::load_f16(reinterpret_cast<const std::uint16_t*>(p) + 16 * part);
  }
  FT_INLINE A activation(const std::byte* p, int part) {
    return Simd::set1(reinterpret_cast<const float*>(p)[part]);
  }
};

// Bytes; far enough for memory, near enough for the first cache.
inline constexpr std::int64_t kStreamAhead = 2048;
inline constexpr std::int64_t kLine = 64;
// 8 KiB: the chunk in work and the one that is asked for share the first cache.
inline constexpr int kStreamSteps = 32;

// A tile that cannot keep all the panel's sums in registers takes its steps several times.
template <class Dot, int kRows>
inline constexpr int kTurns = kPanel / (Dot::columns_for(kRows) * Dot::kOutputs);

template <class Dot, int kRows, Prefetch kPrefetch, int kKPerStep>
void tile(const TileArgs& args) {
  constexpr int kColumns = Dot::columns_for(kRows);
  constexpr std::int64_t kColumnBytes = Dot::kOutputs * std::int64_t{kStepBytes} / kPanel;
  constexpr std::int64_t kActivationStep = kKPerStep * activation_bytes(Dot::kActivation);
  constexpr bool kStreamNear = kPrefetch == Prefetch::kStream && kTurns<Dot, kRows> == 1;
  constexpr bool kNextChunk = kPrefetch == Prefetch::kStream && !kStreamNear;
  // Line after line, as memory lies: in the order of use every line is a jump, which costs a fifth
  // of the bandwidth.
  constexpr int kLinesAhead = kPrefetch == Prefetch::kOneLine    ? 1
                              : kPrefetch == Prefetch::kTwoLines ? 2
                              : kNextChunk                       ? kStepBytes / kLine
                                                                 : 0;
  const std::byte* ahead = args.ahead;
  for (int column = 0; column < kPanel / Dot::kOutputs; column += kColumns) {
    typename Dot::Acc acc[kRows][kColumns];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
      for (int b = 0; b < kColumns; ++b)
        acc[r][b] = args.first ? Dot::zero()
                               : Dot::start(args.c + r * kPanel + (column + b) * Dot::kOutputs);
    const std::byte* w = args.w + column * kColumnBytes;
    const std::byte* a = args.a;
    for (std::int64_t step = 0; step < args.n_steps;
         ++step, w += kStepBytes, a += kActivationStep) {
      if constexpr (kStreamNear) {
#pragma GCC unroll 4
        for (int i = 0; i < kStepBytes / kLine; ++i)
          Simd::prefetch_near(w + i * kLine + kStreamAhead);
      }
      if constexpr (kLinesAhead > 0) {
        if (step % kTurns<Dot, kRows> == 0) {  // each turn asks for its share
#pragma GCC unroll 4
          for (int i = 0; i < kLinesAhead; ++i) {
            if constexpr (kNextChunk)
              Simd::prefetch_near(ahead + i * kLine);
            else
              Simd::prefetch_far(ahead + i * kLine);
          }
          ahead += kLinesAhead * kLine;
        }
      }
#pragma GCC unroll 2
      for (int part = 0; part < Dot::kParts; ++part) {
        typename Dot::W weights[kColumns];
#pragma GCC unroll 8
        for (int b = 0; b < kColumns; ++b) weights[b] = Dot::weights(w + b * kColumnBytes, part);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          const typename Dot::A x = Dot::activation(a + r * args.a_stride, part);
#pragma GCC unroll 8
          for (int b = 0; b < kColumns; ++b) acc[r][b] = Dot::mac(acc[r][b], weights[b], x);
        }
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
      for (int b = 0; b < kColumns; ++b)
        Dot::finish(args.c + r * kPanel + (column + b) * Dot::kOutputs, acc[r][b]);
  }
}

template <class Dot, int kKPerStep, int kRows>
void add_tiles(Product& product) {
  product.stream_steps[kRows - 1] = kTurns<Dot, kRows> == 1 ? 0 : kStreamSteps;
  product.tile[kRows - 1][0] = tile<Dot, kRows, Prefetch::kNone, kKPerStep>;
  product.tile[kRows - 1][1] = tile<Dot, kRows, Prefetch::kStream, kKPerStep>;
  product.tile[kRows - 1][2] = tile<Dot, kRows, Prefetch::kOneLine, kKPerStep>;
  product.tile[kRows - 1][3] = tile<Dot, kRows, Prefetch::kTwoLines, kKPerStep>;
  if constexpr (kRows > 1) add_tiles<Dot, kKPerStep, kRows - 1>(product);
}

template <class Dot, int kKPerStep>
Product make_product() {
  Product product;
  product.activation = Dot::kActivation;
  product.k_per_step = kKPerStep;
  product.chunk_steps = Simd::kChunkSteps;
  add_tiles<Dot, kKPerStep, kTileRows>(product);
  return product;
}
