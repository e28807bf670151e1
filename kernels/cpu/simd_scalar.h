// Sixteen floats in portable C++: the compiler turns the vector type into whatever the baseline
// machine has. No fma here: without the instruction it is a library call, so products and sums
// round apart and these are other bits. Included by one isa_*.cc only, inside an unnamed namespace.
#pragma once

#define FT_INLINE __attribute__((always_inline)) static inline

struct Simd {
  using V = float __attribute__((vector_size(64)));
  using I = std::int32_t __attribute__((vector_size(64)));
  using U = std::uint32_t __attribute__((vector_size(64)));
  static constexpr int columns_for(int) { return 1; }  // of a panel, at a time
  static constexpr bool kAsksAhead = false;
  static constexpr int kStripOutputs = kPanel;
  static constexpr bool kPairsPanels = false;
  static constexpr int kChunkSteps = 64;   // 16 KiB
  static constexpr int kScoreQueries = 4;  // at once: each has two registers of sums
  static constexpr int kValueQueries = 1;
  static constexpr int value_vectors(int) { return 4; }

  FT_INLINE V zero() { return V{}; }
  FT_INLINE V set1(float x) { return V{} + x; }
  FT_INLINE V load(const float* p) {
    V v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
  }
  FT_INLINE V load_n(const float* p, std::int64_t n) {
    V v{};
    for (int i = 0; i < n; ++i) v[i] = p[i];
    return v;
  }
  FT_INLINE void store(float* p, V v) { __builtin_memcpy(p, &v, sizeof v); }
  FT_INLINE void store_n(float* p, V v, std::int64_t n) {
    for (int i = 0; i < n; ++i) p[i] = v[i];
  }
  FT_INLINE V add(V a, V b) { return a + b; }
  FT_INLINE V sub(V a, V b) { return a - b; }
  FT_INLINE V mul(V a, V b) { return a * b; }
  FT_INLINE V div(V a, V b) { return a / b; }
  FT_INLINE V fma(V a, V b, V c) { return a * b + c; }
  FT_INLINE V max(V a, V b) { return a > b ? a : b; }  // b where one is NaN
  FT_INLINE float lane_sum(V v) {
    for (int width = 8; width > 0; width /= 2)
      for (int i = 0; i < width; ++i) v[i] = v[i] + v[i + width];
    return v[0];
  }
  FT_INLINE float lane_max(V v) {
    for (int width = 8; width > 0; width /= 2)
      for (int i = 0; i < width; ++i) v[i] = v[i] > v[i + width] ? v[i] : v[i + width];
    return v[0];
  }
  FT_INLINE std::uint32_t mask_ge(V a, V b) {
    const I m = a >= b;
    std::uint32_t bits = 0;
    for (int i = 0; i < 16; ++i) bits |= static_cast<std::uint32_t>(m[i] & 1) << i;
    return bits;
  }
  FT_INLINE V zero_if_below(V result, V x, float limit) {
    return x < set1(limit) ? zero() : result;
  }
  // p * 2^n, n in the low bits of `shifted`
  FT_INLINE V scale(V p, V shifted) { return (V)((U)p + ((U)shifted << 23)); }
  FT_INLINE V noise_bound(const std::uint32_t* words) {
    V v;
    for (int i = 0; i < 16; ++i) v[i] = gumbel_bound(words[i]);
    return v;
  }
  FT_INLINE V load_bf16(const std::uint16_t* p) {
    V v;
    for (int i = 0; i < 16; ++i) v[i] = bf16_to_f32(p[i]);
    return v;
  }
  // Of lanes with two bf16 each: the one of the lower and of the higher address.
  FT_INLINE V low_bf16(V pairs) { return (V)((U)pairs << 16); }
  FT_INLINE V high_bf16(V pairs) { return (V)((U)pairs & 0xffff0000u); }
  FT_INLINE V load_f16(const std::uint16_t* p) {
    V v;
    for (int i = 0; i < 16; ++i) v[i] = f16_to_f32(p[i]);
    return v;
  }
  FT_INLINE void transpose(V (&rows)[16]) {
    for (int i = 0; i < 16; ++i)
      for (int j = 0; j < i; ++j) {
        const float t = rows[i][j];
        rows[i][j] = rows[j][i];
        rows[j][i] = t;
      }
  }
  FT_INLINE void keep_in_register(V&) {}
  FT_INLINE void prefetch_near(const std::byte* p) { __builtin_prefetch(p, 0, 3); }
  FT_INLINE void prefetch_far(const std::byte* p) { __builtin_prefetch(p, 0, 2); }
  FT_INLINE void noise_words(std::uint32_t first_id, const NoiseKey& key, std::uint32_t* words) {
    plain_noise_words(first_id, key, words);
  }
};

struct DotBf16 {
  static constexpr Activation kActivation = Activation::kF32;
  static constexpr int kOutputs = 16, kParts = 1;
  static constexpr bool kHalves = false;
  static constexpr int columns_for(int rows) { return Simd::columns_for(rows); }
  using Acc = Simd::V;
  struct W {
    Simd::V even, odd;
  };
  struct A {
    Simd::V even, odd;
  };
  FT_INLINE W weights(const std::byte* p, int) {
    Simd::U u;
    __builtin_memcpy(&u, p, sizeof u);
    return {(Simd::V)(u << 16), (Simd::V)(u & 0xffff0000u)};
  }
  FT_INLINE A activation(const std::byte* p, int) {
    float x[2];
    __builtin_memcpy(x, p, sizeof x);
    return {Simd::set1(x[0]), Simd::set1(x[1])};
  }
  FT_INLINE Acc mac(Acc c, const W& w, const A& a) {
    return Simd::fma(w.odd, a.odd, Simd::fma(w.even, a.even, c));
  }
  FT_INLINE Acc start(const float* c) { return Simd::load(c); }
  FT_INLINE void finish(float* c, const Acc& acc) { Simd::store(c, acc); }
  FT_INLINE Acc zero() { return Simd::zero(); }
};

struct DotI8 {
  static constexpr Activation kActivation = Activation::kI8;
  static constexpr int kOutputs = 16, kParts = 1;
  static constexpr bool kHalves = false;
  static constexpr int columns_for(int rows) { return Simd::columns_for(rows); }
  static constexpr int kept_columns_for(int) { return 0; }
  using Acc = Simd::I;
  struct W {
    std::uint8_t w[64];
  };
  struct A {
    std::int8_t a[4];
  };
  FT_INLINE W weights(const std::byte* p, int) {
    W w;
    __builtin_memcpy(&w, p, sizeof w);
    return w;
  }
  FT_INLINE A activation(const std::byte* p, int) {
    A a;
    __builtin_memcpy(&a, p, sizeof a);
    return a;
  }
  FT_INLINE Acc mac(Acc c, const W& w, const A& a) {
    for (int i = 0; i < 16; ++i)
      c[i] += w.w[4 * i] * a.a[0] + w.w[4 * i + 1] * a.a[1] + w.w[4 * i + 2] * a.a[2] +
              w.w[4 * i + 3] * a.a[3];
    return c;
  }
  FT_INLINE Acc begin(std::int32_t start) { return Acc{} + start; }
  FT_INLINE void add_to(float* c, const Acc& acc, float scale, bool first) {
    const Simd::V chain = first ? Simd::zero() : Simd::load(c);
    Simd::store(c, Simd::fma(__builtin_convertvector(acc, Simd::V), Simd::set1(scale), chain));
  }
};

// Weights of four bits: of a step, k to k + 3 in the low halves, k + 4 to k + 7 in the high ones.
struct DotI4 {
  static constexpr int kOutputs = 16, kSteps = 1;
  static constexpr int kept_columns_for(int) { return 0; }
  using Acc = Simd::I;
  using Scales = Simd::V;
  static constexpr bool kHasTable = false;
  using Values = PlainCodes;
  struct W {
    std::uint8_t w[64];
  };
  FT_INLINE W weights(const std::byte* p, PlainCodes) {
    W w;
    __builtin_memcpy(&w, p, sizeof w);
    return w;
  }
  FT_INLINE Acc mac(Acc c, const W& w, const std::byte* a) {
    std::int8_t codes[8];
    __builtin_memcpy(codes, a, sizeof codes);
    for (int i = 0; i < 16; ++i)
      for (int j = 0; j < 4; ++j)
        c[i] += (w.w[4 * i + j] & 15) * codes[j] + (w.w[4 * i + j] >> 4) * codes[4 + j];
    return c;
  }
  FT_INLINE Acc begin(std::int32_t start) { return Acc{} + start; }
  FT_INLINE Acc zeros(const std::byte* p) {
    std::uint8_t bytes[16];
    __builtin_memcpy(bytes, p, sizeof bytes);
    Acc zeros{};
    for (int i = 0; i < 16; ++i) zeros[i] = bytes[i];
    return zeros;
  }
  FT_INLINE Acc begin(const Acc& zeros, std::int32_t sum) { return zeros * sum; }
  FT_INLINE Scales scales(const std::byte* p) {
    std::uint16_t halves[16];
    __builtin_memcpy(halves, p, sizeof halves);
    return Simd::load_f16(halves);
  }
  FT_INLINE void add_to(float* c, const Acc& acc, const Scales& s, float t, bool first) {
    const Simd::V chain = first ? Simd::zero() : Simd::load(c);
    const Simd::V scale = Simd::mul(s, Simd::set1(t));
    Simd::store(c, Simd::fma(__builtin_convertvector(acc, Simd::V), scale, chain));
  }
};

struct DotI4Table : DotI4 {
  static constexpr bool kHasTable = true;
  using Values = const std::int8_t*;
  struct W {
    std::int8_t low[64], high[64];
  };
  FT_INLINE Values values(const std::int8_t* table) { return table; }
  // Functions of their own: inlined into tiles of six rows they take minutes to compile.
  __attribute__((noinline)) static W weights(const std::byte* p, Values table) {
    W w;
    for (int i = 0; i < 64; ++i) {
      const auto code = std::to_integer<unsigned>(p[i]);
      w.low[i] = table[code & 15u];
      w.high[i] = table[code >> 4u];
    }
    return w;
  }
  __attribute__((noinline)) static Acc mac(Acc c, const W& w, const std::byte* a) {
    std::int8_t codes[8];
    __builtin_memcpy(codes, a, sizeof codes);
    for (int i = 0; i < 16; ++i)
      for (int j = 0; j < 4; ++j)
        c[i] += w.low[4 * i + j] * codes[j] + w.high[4 * i + j] * codes[4 + j];
    return c;
  }
  FT_INLINE Acc begin_table(std::int32_t) { return Acc{}; }
};
using DotI4NonUniform = DotI4Table;
