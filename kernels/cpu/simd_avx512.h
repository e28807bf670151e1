// Sixteen floats in one AVX-512 register. Included by the isa_avx512*.cc files, inside an unnamed
// namespace.
#pragma once

#define FT_INLINE __attribute__((always_inline)) static inline

struct Simd {
  using V = __m512;
  static constexpr int columns_for(int) { return 4; }  // of a panel, in registers: all
  static constexpr bool kAsksAhead = true;
  static constexpr int kStripOutputs = kPanel;
  static constexpr bool kPairsPanels = false;
  static constexpr int kChunkSteps = 128;  // 32 KiB, taken once
  static constexpr int kScoreQueries = 4;  // at once: each has two registers of sums
  static constexpr int kValueQueries = 4;  // at once: each has four registers of sums
  static constexpr int value_vectors(int) { return 4; }

  FT_INLINE __mmask16 first(std::int64_t n) { return static_cast<__mmask16>((1u << n) - 1u); }
  FT_INLINE V zero() { return _mm512_setzero_ps(); }
  FT_INLINE V set1(float x) { return _mm512_set1_ps(x); }
  FT_INLINE V load(const float* p) { return _mm512_loadu_ps(p); }
  FT_INLINE V load_n(const float* p, std::int64_t n) { return _mm512_maskz_loadu_ps(first(n), p); }
  FT_INLINE void store(float* p, V v) { _mm512_storeu_ps(p, v); }
  FT_INLINE void store_n(float* p, V v, std::int64_t n) { _mm512_mask_storeu_ps(p, first(n), v); }
  FT_INLINE V add(V a, V b) { return _mm512_add_ps(a, b); }
  FT_INLINE V sub(V a, V b) { return _mm512_sub_ps(a, b); }
  FT_INLINE V mul(V a, V b) { return _mm512_mul_ps(a, b); }
  FT_INLINE V div(V a, V b) { return _mm512_div_ps(a, b); }
  FT_INLINE V fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
  FT_INLINE V max(V a, V b) { return _mm512_max_ps(a, b); }
  FT_INLINE float lane_sum(V v) {
    const __m256 e = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(e), _mm256_extractf128_ps(e, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_shuffle_ps(q, q, 1)));
  }
  FT_INLINE float lane_max(V v) {
    const __m256 e = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 q = _mm_max_ps(_mm256_castps256_ps128(e), _mm256_extractf128_ps(e, 1));
    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_shuffle_ps(q, q, 1)));
  }
  FT_INLINE std::uint32_t mask_ge(V a, V b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ); }
  FT_INLINE V zero_if_below(V result, V x, float limit) {
    return _mm512_maskz_mov_ps(
        static_cast<__mmask16>(~_mm512_cmp_ps_mask(x, _mm512_set1_ps(limit), _CMP_LT_OQ)), result);
  }
  FT_INLINE V scale(V p, V shifted) {
    return _mm512_castsi512_ps(_mm512_add_epi32(
        _mm512_castps_si512(p), _mm512_slli_epi32(_mm512_castps_si512(shifted), 23)));
  }
  FT_INLINE V noise_bound(const std::uint32_t* words) {
    const __m512i w = _mm512_srli_epi32(_mm512_loadu_si512(words), 1);
    const __m512 i = _mm512_cvtepi32_ps(_mm512_castps_si512(_mm512_cvtepi32_ps(w)));
    return _mm512_mul_ps(
        _mm512_set1_ps(0.69314718f),
        _mm512_sub_ps(_mm512_set1_ps(158.0f), _mm512_mul_ps(i, _mm512_set1_ps(0x1p-23f))));
  }
  FT_INLINE V load_bf16(const std::uint16_t* p) {
    const __m512i u =
        _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(u, 16));
  }
  // Of lanes with two bf16 each: the one of the lower and of the higher address.
  FT_INLINE V low_bf16(V pairs) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(pairs), 16));
  }
  FT_INLINE V high_bf16(V pairs) {
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(pairs),
                                                _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  FT_INLINE V load_f16(const std::uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  FT_INLINE void transpose(V (&r)[16]) {
    V t[16];
    for (int i = 0; i < 16; i += 2) {
      t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
      t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
      const auto pd = [](V x) { return _mm512_castps_pd(x); };
      const auto ps = [](__m512d x) { return _mm512_castpd_ps(x); };
      r[i] = ps(_mm512_unpacklo_pd(pd(t[i]), pd(t[i + 2])));
      r[i + 1] = ps(_mm512_unpackhi_pd(pd(t[i]), pd(t[i + 2])));
      r[i + 2] = ps(_mm512_unpacklo_pd(pd(t[i + 1]), pd(t[i + 3])));
      r[i + 3] = ps(_mm512_unpackhi_pd(pd(t[i + 1]), pd(t[i + 3])));
    }
    for (int i = 0; i < 4; ++i) {  // r[4g + i]: lane l holds column 4l + i of rows 4g .. 4g+3
      t[i] = _mm512_shuffle_f32x4(r[i], r[4 + i], 0x88);
      t[4 + i] = _mm512_shuffle_f32x4(r[i], r[4 + i], 0xdd);
      t[8 + i] = _mm512_shuffle_f32x4(r[8 + i], r[12 + i], 0x88);
      t[12 + i] = _mm512_shuffle_f32x4(r[8 + i], r[12 + i], 0xdd);
    }
    for (int i = 0; i < 4; ++i) {
      r[i] = _mm512_shuffle_f32x4(t[i], t[8 + i], 0x88);
      r[8 + i] = _mm512_shuffle_f32x4(t[i], t[8 + i], 0xdd);
      r[4 + i] = _mm512_shuffle_f32x4(t[4 + i], t[12 + i], 0x88);
      r[12 + i] = _mm512_shuffle_f32x4(t[4 + i], t[12 + i], 0xdd);
    }
  }
  // Stops the compiler from folding the load into each use.
  FT_INLINE void keep_in_register(V& v) { asm("" : "+v"(v)); }
  FT_INLINE void prefetch_near(const std::byte* p) {
    _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0);
  }
  FT_INLINE void prefetch_far(const std::byte* p) {
    _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1);
  }

  // Sixteen ids: four Philox blocks, one 64-bit lane each, the four words of a block in two
  // registers' halves.
  FT_INLINE void noise_words(std::uint32_t first_id, const NoiseKey& key, std::uint32_t* words) {
    const auto set = [](std::uint32_t x) { return _mm256_set1_epi64x(static_cast<long long>(x)); };
    const __m256i low = _mm256_set1_epi64x(0xffffffffll);
    __m256i c0 = _mm256_add_epi64(set(first_id >> 2), _mm256_set_epi64x(3, 2, 1, 0));
    __m256i c1 = set(key.position), c2 = set(key.choice), c3 = _mm256_setzero_si256();
    std::uint32_t k0 = static_cast<std::uint32_t>(key.seed),
                  k1 = static_cast<std::uint32_t>(key.seed >> 32);
    const __m256i m0 = set(0xD2511F53u), m1 = set(0xCD9E8D57u);
    for (int round = 0; round < 10; ++round) {
      const __m256i p0 = _mm256_mul_epu32(m0, c0), p1 = _mm256_mul_epu32(m1, c2);
      const __m256i n0 = _mm256_ternarylogic_epi64(_mm256_srli_epi64(p1, 32), c1, set(k0), 0x96);
      const __m256i n2 = _mm256_ternarylogic_epi64(_mm256_srli_epi64(p0, 32), c3, set(k1), 0x96);
      c1 = _mm256_and_si256(p1, low);
      c3 = _mm256_and_si256(p0, low);
      c0 = n0;
      c2 = n2;
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    // lane b: words 0,1 of block b in x, words 2,3 in y
    const __m256i x = _mm256_or_si256(c0, _mm256_slli_epi64(c1, 32));
    const __m256i y = _mm256_or_si256(c2, _mm256_slli_epi64(c3, 32));
    const __m256i lo = _mm256_unpacklo_epi64(x, y), hi = _mm256_unpackhi_epi64(x, y);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(words), _mm256_permute2x128_si256(lo, hi, 0x20));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(words + 8),
                        _mm256_permute2x128_si256(lo, hi, 0x31));
  }
};

// Integer sums of sixteen outputs over a group.
struct GroupSums {
  using Acc = __m512i;
  using Chain = __m512;
  FT_INLINE Acc begin(std::int32_t start) { return _mm512_set1_epi32(start); }
  FT_INLINE void add_to(float* c, Acc acc, float scale, bool first) {
    const __m512 chain = first ? _mm512_setzero_ps() : _mm512_loadu_ps(c);
    _mm512_storeu_ps(c, add_scaled(chain, acc, scale));
  }
  FT_INLINE Chain add_scaled(Chain chain, Acc acc, float scale) {
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc), _mm512_set1_ps(scale), chain);
  }
};

#if defined(__AVX512BF16__)

// Products of bf16 pairs: the processor's own rounding, the same on every machine that has the
// instruction.
struct DotBf16 {
  static constexpr Activation kActivation = Activation::kBf16;
  static constexpr int kOutputs = 16, kParts = 1;
  static constexpr bool kHalves = false;
  static constexpr int columns_for(int rows) { return Simd::columns_for(rows); }
  using Acc = __m512;
  using W = __m512bh;
  using A = __m512bh;
  FT_INLINE W weights(const std::byte* p, int) { return (__m512bh)_mm512_loadu_si512(p); }
  FT_INLINE A activation(const std::byte* p, int) {
    std::int32_t pair;
    __builtin_memcpy(&pair, p, sizeof pair);
    return (__m512bh)_mm512_set1_epi32(pair);
  }
  FT_INLINE Acc mac(Acc c, W w, A a) { return _mm512_dpbf16_ps(c, w, a); }
  FT_INLINE Acc start(const float* c) { return _mm512_loadu_ps(c); }
  FT_INLINE void finish(float* c, Acc acc) { _mm512_storeu_ps(c, acc); }
  FT_INLINE Acc zero() { return _mm512_setzero_ps(); }
};

struct DotI8 : GroupSums {
  static constexpr Activation kActivation = Activation::kI8;
  static constexpr int kOutputs = 16, kParts = 1;
  static constexpr bool kHalves = false;
  static constexpr int columns_for(int rows) { return Simd::columns_for(rows); }
  static constexpr int kept_columns_for(int rows) { return rows > 3 ? 2 : 4; }  // of kept_tile
  using W = __m512i;
  using A = __m512i;
  FT_INLINE W weights(const std::byte* p, int) { return _mm512_loadu_si512(p); }
  FT_INLINE A activation(const std::byte* p, int) {
    std::int32_t four;
    __builtin_memcpy(&four, p, sizeof four);
    return _mm512_set1_epi32(four);
  }
  // Hides the sum from the optimiser, which else keeps the sums of a group in memory and writes
  // each at every step.
  FT_INLINE Acc mac(Acc c, W w, A a) {
    Acc sum = _mm512_dpbusd_epi32(c, w, a);
    asm("" : "+v"(sum));
    return sum;
  }
};

#else

struct DotBf16 {
  static constexpr Activation kActivation = Activation::kF32;
  static constexpr int kOutputs = 16, kParts = 1;
  static constexpr bool kHalves = false;
  static constexpr int columns_for(int rows) { return Simd::columns_for(rows); }
  using Acc = __m512;
  struct W {
    __m512 even, odd;
  };
  struct A {
    __m512 even, odd;
  };
  FT_INLINE W weights(const std::byte* p, int) {
    const __m512i u = _mm512_loadu_si512(p);
    return {
        _mm512_castsi512_ps(_mm512_slli_epi32(u, 16)),
        _mm512_castsi512_ps(_mm512_and_si512(u, _mm512_set1_epi32(static_cast<int>(0xffff0000u))))};
  }
  FT_INLINE A activation(const std::byte* p, int) {
    float x[2];
    __builtin_memcpy(x, p, sizeof x);
    return {_mm512_set1_ps(x[0]), _mm512_set1_ps(x[1])};
  }
  FT_INLINE Acc mac(Acc c, const W& w, const A& a) {
    return _mm512_fmadd_ps(w.odd, a.odd, _mm512_fmadd_ps(w.even, a.even, c));
  }
  FT_INLINE Acc start(const float* c) { return _mm512_loadu_ps(c); }
  FT_INLINE void finish(float* c, Acc acc) { _mm512_storeu_ps(c, acc); }
  FT_INLINE Acc zero() { return _mm512_setzero_ps(); }
};

// Integer sums are exact in any order.
struct DotI8 : GroupSums {
  static constexpr int kept_columns_for(int) { return 0; }
  static constexpr Activation kActivation = Activation::kI16;
  static constexpr int kOutputs = 16, kParts = 2;
  static constexpr bool kHalves = true;
  static constexpr int columns_for(int rows) { return Simd::columns_for(rows); }
  using W = __m512i;
  using A = __m512i;
  FT_INLINE W weights(const std::byte* p, int part) {
    return _mm512_cvtepu8_epi16(
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32 * part)));
  }
  FT_INLINE A activation(const std::byte* p, int part) {
    std::int32_t two;
    __builtin_memcpy(&two, p + 4 * part, sizeof two);
    return _mm512_set1_epi32(two);
  }
  FT_INLINE Acc mac(Acc c, W w, A a) {  // as with VNNI
    Acc sum = _mm512_add_epi32(c, _mm512_madd_epi16(w, a));
    asm("" : "+v"(sum));
    return sum;
  }
};

#endif

// Weights of four bits. A step of sixteen outputs is a line: k to k + 3 in the low halves, k + 4 to
// k + 7 in the high ones.
struct DotI4 {
  static constexpr int kOutputs = 16, kSteps = 2;
  using Acc = __m512i;
  using Scales = __m512;
  using Chain = __m512;
#if defined(__AVX512VNNI__)
  static constexpr int kept_columns_for(int) { return 2; }  // of kept_int4_tile
#else
  static constexpr int kept_columns_for(int) { return 0; }
#endif
  static constexpr bool kHasTable = false;
  using Values = PlainCodes;
  struct W {
    __m512i quarter[4];
  };
  FT_INLINE W weights(const std::byte* p, PlainCodes) {
    const __m512i low = _mm512_set1_epi8(15);
    const __m512i one = _mm512_loadu_si512(p), two = _mm512_loadu_si512(p + kStepBytes);
    return {{_mm512_and_si512(one, low), _mm512_and_si512(_mm512_srli_epi16(one, 4), low),
             _mm512_and_si512(two, low), _mm512_and_si512(_mm512_srli_epi16(two, 4), low)}};
  }
  FT_INLINE __m512i four(const std::byte* a) {
    std::int32_t codes;
    __builtin_memcpy(&codes, a, sizeof codes);
    return _mm512_set1_epi32(codes);
  }
#if defined(__AVX512VNNI__)
  FT_INLINE Acc mac(Acc c, const W& w, const std::byte* a) {
    c = _mm512_dpbusd_epi32(c, w.quarter[0], four(a));
    c = _mm512_dpbusd_epi32(c, w.quarter[1], four(a + 4));
    c = _mm512_dpbusd_epi32(c, w.quarter[2], four(a + 8));
    return _mm512_dpbusd_epi32(c, w.quarter[3], four(a + 12));
  }
  struct Step {
    __m512i low, high;
  };
  FT_INLINE Step step_weights(const std::byte* p, PlainCodes) {
    const __m512i mask = _mm512_set1_epi8(15), line = _mm512_loadu_si512(p);
    return {_mm512_and_si512(line, mask), _mm512_and_si512(_mm512_srli_epi16(line, 4), mask)};
  }
  template <int kColumns>
  FT_INLINE void add_step(Acc (&c)[kColumns], const Step (&w)[kColumns], const std::byte* a) {
    const __m512i low = four(a), high = four(a + 4);
#pragma GCC unroll 4
    for (int b = 0; b < kColumns; ++b) {  // hidden from the optimiser, as in DotI8
      c[b] = _mm512_dpbusd_epi32(c[b], w[b].low, low);
      asm("" : "+v"(c[b]));
    }
#pragma GCC unroll 4
    for (int b = 0; b < kColumns; ++b) {
      c[b] = _mm512_dpbusd_epi32(c[b], w[b].high, high);
      asm("" : "+v"(c[b]));
    }
  }
#else
  static_assert(fits_i16(4 * kSteps, 15));
  FT_INLINE Acc mac(Acc c, const W& w, const std::byte* a) {
    const __m512i x = _mm512_add_epi16(_mm512_maddubs_epi16(w.quarter[0], four(a)),
                                       _mm512_maddubs_epi16(w.quarter[1], four(a + 4)));
    const __m512i y = _mm512_add_epi16(_mm512_maddubs_epi16(w.quarter[2], four(a + 8)),
                                       _mm512_maddubs_epi16(w.quarter[3], four(a + 12)));
    return _mm512_add_epi32(c, _mm512_madd_epi16(_mm512_add_epi16(x, y), _mm512_set1_epi16(1)));
  }
#endif
  FT_INLINE Acc begin(std::int32_t start) { return _mm512_set1_epi32(start); }
  FT_INLINE Acc zeros(const std::byte* p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  // The sum of at most 64 codes is one of 16 bits, and the upper halves of zeros are 0.
  FT_INLINE Acc begin(Acc zeros, std::int32_t sum) {
    return _mm512_madd_epi16(zeros, _mm512_set1_epi32(sum));
  }
  FT_INLINE Scales scales(const std::byte* p) {
    return Simd::load_f16(reinterpret_cast<const std::uint16_t*>(p));
  }
  FT_INLINE void add_to(float* c, Acc acc, Scales s, float t, bool first) {
    const __m512 chain = first ? _mm512_setzero_ps() : _mm512_loadu_ps(c);
    _mm512_storeu_ps(c, add_scaled(chain, acc, s, t));
  }
  FT_INLINE Chain add_scaled(Chain chain, Acc acc, Scales s, float t) {
    const __m512 scale = _mm512_mul_ps(s, _mm512_set1_ps(t));
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc), scale, chain);
  }
};

// With VNNI a table has 128 added to its values. Without, their signs go to the row's codes: a pair
// of products is at most 2 * 128 * 127 and fits 16 bits.
struct DotI4Table : DotI4 {
  static constexpr bool kHasTable = true;
  using Values = __m512i;
  FT_INLINE W weights(const std::byte* p, Values values) {
    W w = DotI4::weights(p, {});
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) w.quarter[i] = _mm512_shuffle_epi8(values, w.quarter[i]);
    return w;
  }
  FT_INLINE __m512i four_times(const std::int8_t* table) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
  }
#if defined(__AVX512VNNI__)
  FT_INLINE Values values(const std::int8_t* table) {
    return _mm512_xor_si512(four_times(table), _mm512_set1_epi8(-128));
  }
  FT_INLINE Step step_weights(const std::byte* p, Values values) {
    const Step codes = DotI4::step_weights(p, {});
    return {_mm512_shuffle_epi8(values, codes.low), _mm512_shuffle_epi8(values, codes.high)};
  }
  FT_INLINE Acc begin_table(std::int32_t start) { return begin(start); }
#else
  FT_INLINE Values values(const std::int8_t* table) { return four_times(table); }
  FT_INLINE Acc mac(Acc c, const W& w, const std::byte* a) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const __m512i codes = four(a + 4 * i), signs = w.quarter[i];
      const __m512i turned =
          _mm512_mask_sub_epi8(codes, _mm512_movepi8_mask(signs), _mm512_setzero_si512(), codes);
      const __m512i pairs = _mm512_maddubs_epi16(_mm512_abs_epi8(signs), turned);
      c = _mm512_add_epi32(c, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
    }
    return c;
  }
  FT_INLINE Acc begin_table(std::int32_t) { return _mm512_setzero_si512(); }
#endif
};

#if defined(__AVX512VNNI__)
using DotI4NonUniform = DotI4Table;  // sums of 32 bits take any table
#else
// Of kNonUniformTable the distances from its least value are looked up, as with AVX2. Products of
// two steps fit 16 bits, too, so that the sums are those of DotI4.
struct DotI4NonUniform : DotI4 {
  static_assert(fits_i16(4 * kSteps, kMostNonUniformDistance));
  static constexpr bool kHasTable = true;
  using Values = __m512i;
  FT_INLINE Values values(const std::int8_t* table) {
    return _mm512_sub_epi8(DotI4Table::four_times(table), _mm512_set1_epi8(kLeastNonUniform));
  }
  FT_INLINE W weights(const std::byte* p, Values values) { return DotI4Table::weights(p, values); }
  FT_INLINE Acc begin_table(std::int32_t start) {
    return begin(start / kStartOverSum * -kLeastNonUniform);
  }
};
#endif
