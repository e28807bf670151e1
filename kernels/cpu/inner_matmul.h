// Tiles of the matrix product: up to six rows against one panel of 64 outputs. Every output is one
// chain of additions along k; the chain is cut into chunks by passing accumulators through c, which
// changes no bit. Included by isa_*.cc.
#pragma once

struct DotF32 {
  static constexpr Activation kActivation = Activation::kF32;
  using Acc = Simd::V;
  using W = Simd::V;
  using A = Simd::V;
  FT_INLINE W weights(const std::byte* p) { return Simd::load(reinterpret_cast<const float*>(p)); }
  FT_INLINE A activation(const std::byte* p) {
    return Simd::set1(*reinterpret_cast<const float*>(p));
  }
  FT_INLINE Acc mac(const Acc& c, const W& w, const A& a) { return Simd::fma(w, a, c); }
  FT_INLINE Acc start(const float* c) { return Simd::load(c); }
  FT_INLINE void finish(float* c, const Acc& acc) { Simd::store(c, acc); }
  FT_INLINE Acc zero() { return Simd::zero(); }
};

// Two values of k per 64 bytes: sixteen outputs of the first, then of the second.
struct DotF16 {
  static constexpr Activation kActivation = Activation::kF32;
  using Acc = Simd::V;
  struct W {
    Simd::V even, odd;
  };
  struct A {
    Simd::V even, odd;
  };
  FT_INLINE W weights(const std::byte* p) {
    const std::uint16_t* h = reinterpret_cast<const std::uint16_t*>(p);
    return {Simd::load_f16(h), Simd::load_f16(h + 16)};
  }
  FT_INLINE A activation(const std::byte* p) {
    const float* x = reinterpret_cast<const float*>(p);
    return {Simd::set1(x[0]), Simd::set1(x[1])};
  }
  FT_INLINE Acc mac(const Acc& c, const W& w, const A& a) {
    return Simd::fma(w.odd, a.odd, Simd::fma(w.even, a.even, c));
  }
  FT_INLINE Acc start(const float* c) { return Simd::load(c); }
  FT_INLINE void finish(float* c, const Acc& acc) { Simd::store(c, acc); }
  FT_INLINE Acc zero() { return Simd::zero(); }
};

inline constexpr std::int64_t kStreamAhead =
    2048;  // bytes; far enough for memory, near enough for the first cache

template <class Dot, int kRows, int kColumns, Prefetch kPrefetch, int kKPerStep>
void tile(const TileArgs& args) {
  constexpr std::int64_t kActivationStep =
      kKPerStep * (Dot::kActivation == Activation::kF32    ? 4
                   : Dot::kActivation == Activation::kBf16 ? 2
                                                           : 1);
  for (int column = 0; column < 4; column += kColumns) {
    typename Dot::Acc acc[kRows][kColumns];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int b = 0; b < kColumns; ++b)
        acc[r][b] = args.first ? Dot::zero() : Dot::start(args.c + r * kPanel + (column + b) * 16);
    const std::byte* w = args.w + column * 64;
    const std::byte* a = args.a;
    const std::byte* ahead = args.ahead;
    if constexpr (kPrefetch == Prefetch::kOneLine || kPrefetch == Prefetch::kTwoLines)
      ahead += column * 64 * (kPrefetch == Prefetch::kTwoLines ? 2 : 1) * (args.n_steps / 4);
    for (std::int64_t step = 0; step < args.n_steps;
         ++step, w += kStepBytes, a += kActivationStep) {
      typename Dot::W weights[kColumns];
#pragma GCC unroll 4
      for (int b = 0; b < kColumns; ++b) {
        weights[b] = Dot::weights(w + b * 64);
        if constexpr (kPrefetch == Prefetch::kStream)
          Simd::prefetch_near(w + b * 64 + kStreamAhead);
      }
      if constexpr (kPrefetch == Prefetch::kOneLine || kPrefetch == Prefetch::kTwoLines) {
        if (kColumns == 4 ||
            (step & 3) < kColumns) {  // narrower tiles walk the chunk 4 / kColumns times
          Simd::prefetch_far(ahead);
          if constexpr (kPrefetch == Prefetch::kTwoLines) Simd::prefetch_far(ahead + 64);
          ahead += kPrefetch == Prefetch::kTwoLines ? 128 : 64;
        }
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const typename Dot::A x = Dot::activation(a + r * args.a_stride);
#pragma GCC unroll 4
        for (int b = 0; b < kColumns; ++b) acc[r][b] = Dot::mac(acc[r][b], weights[b], x);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int b = 0; b < kColumns; ++b)
        Dot::finish(args.c + r * kPanel + (column + b) * 16, acc[r][b]);
  }
}

template <class Dot, int kKPerStep, int kRows>
void add_tiles(Product& product) {
  constexpr int kColumns = Simd::panels_for(kRows);
  product.tile[kRows - 1][0] = tile<Dot, kRows, kColumns, Prefetch::kNone, kKPerStep>;
  product.tile[kRows - 1][1] = tile<Dot, kRows, kColumns, Prefetch::kStream, kKPerStep>;
  product.tile[kRows - 1][2] = tile<Dot, kRows, kColumns, Prefetch::kOneLine, kKPerStep>;
  product.tile[kRows - 1][3] = tile<Dot, kRows, kColumns, Prefetch::kTwoLines, kKPerStep>;
  if constexpr (kRows > 1) add_tiles<Dot, kKPerStep, kRows - 1>(product);
}

template <class Dot, int kKPerStep>
Product make_product() {
  Product product;
  product.activation = Dot::kActivation;
  product.k_per_step = kKPerStep;
  add_tiles<Dot, kKPerStep, kTileRows>(product);
  return product;
}
