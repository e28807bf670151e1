// Sixteen floats in two AVX2 registers. The same operations in the same order as the AVX-512
// version, so the same bits. Included by one isa_*.cc only, inside an unnamed namespace.
#pragma once

#define FT_INLINE __attribute__((always_inline)) static inline

struct Simd {
  struct V {
    __m256 lo, hi;
  };
  // How many columns of a panel a tile of `rows` keeps in its registers, two each.
  static constexpr int columns_for(int rows) { return rows == 1 ? 4 : rows == 2 ? 2 : 1; }
  static constexpr bool kAsksAhead = true;
  static constexpr int kStripOutputs = 16;
  static constexpr bool kPairsPanels = true;
  static constexpr int kChunkSteps = 64;  // 16 KiB: taken four or eight times from the first cache

  static constexpr int kScoreQueries = 2;  // at once: each has four registers of sums
  static constexpr int kValueQueries = 4;
  // Times the queries: eight registers of sums.
  static constexpr int value_vectors(int queries) {
    return queries == 1 ? 4 : queries == 2 ? 2 : 1;
  }

  FT_INLINE V zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  FT_INLINE V set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  FT_INLINE V load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  FT_INLINE V load_n(const float* p, std::int64_t n) {
    float t[16] = {};
    for (int i = 0; i < n; ++i) t[i] = p[i];
    return load(t);
  }
  FT_INLINE void store(float* p, V v) {
    _mm256_storeu_ps(p, v.lo);
    _mm256_storeu_ps(p + 8, v.hi);
  }
  FT_INLINE void store_n(float* p, V v, std::int64_t n) {
    float t[16];
    store(t, v);
    for (int i = 0; i < n; ++i) p[i] = t[i];
  }
  FT_INLINE V add(V a, V b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
  FT_INLINE V sub(V a, V b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
  FT_INLINE V mul(V a, V b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
  FT_INLINE V div(V a, V b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
  FT_INLINE V fma(V a, V b, V c) {
    return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
  }
  FT_INLINE V max(V a, V b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
  FT_INLINE float lane_sum(V v) {
    const __m256 e = _mm256_add_ps(v.lo, v.hi);
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(e), _mm256_extractf128_ps(e, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_shuffle_ps(q, q, 1)));
  }
  FT_INLINE float lane_max(V v) {
    const __m256 e = _mm256_max_ps(v.lo, v.hi);
    __m128 q = _mm_max_ps(_mm256_castps256_ps128(e), _mm256_extractf128_ps(e, 1));
    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_shuffle_ps(q, q, 1)));
  }
  FT_INLINE std::uint32_t mask_ge(V a, V b) {
    return static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a.lo, b.lo, _CMP_GE_OQ))) |
           static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a.hi, b.hi, _CMP_GE_OQ)))
               << 8;
  }
  FT_INLINE V zero_if_below(V result, V x, float limit) {
    const __m256 l = _mm256_set1_ps(limit);
    return {_mm256_andnot_ps(_mm256_cmp_ps(x.lo, l, _CMP_LT_OQ), result.lo),
            _mm256_andnot_ps(_mm256_cmp_ps(x.hi, l, _CMP_LT_OQ), result.hi)};
  }
  FT_INLINE __m256 scale_half(__m256 p, __m256 shifted) {
    return _mm256_castsi256_ps(_mm256_add_epi32(
        _mm256_castps_si256(p), _mm256_slli_epi32(_mm256_castps_si256(shifted), 23)));
  }
  FT_INLINE V scale(V p, V shifted) {
    return {scale_half(p.lo, shifted.lo), scale_half(p.hi, shifted.hi)};
  }
  FT_INLINE __m256 noise_bound_half(const std::uint32_t* words) {
    const __m256i w =
        _mm256_srli_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(words)), 1);
    const __m256 i = _mm256_cvtepi32_ps(_mm256_castps_si256(_mm256_cvtepi32_ps(w)));
    return _mm256_mul_ps(
        _mm256_set1_ps(0.69314718f),
        _mm256_sub_ps(_mm256_set1_ps(158.0f), _mm256_mul_ps(i, _mm256_set1_ps(0x1p-23f))));
  }
  FT_INLINE V noise_bound(const std::uint32_t* words) {
    return {noise_bound_half(words), noise_bound_half(words + 8)};
  }
  FT_INLINE __m256 widen(const std::uint16_t* p) {
    const __m256i u = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(u, 16));
  }
  FT_INLINE V load_bf16(const std::uint16_t* p) { return {widen(p), widen(p + 8)}; }
  // Of lanes with two bf16 each: the one of the lower and of the higher address.
  FT_INLINE V low_bf16(V pairs) {
    const auto low = [](__m256 x) {
      return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(x), 16));
    };
    return {low(pairs.lo), low(pairs.hi)};
  }
  FT_INLINE V high_bf16(V pairs) {
    const __m256 mask = _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(0xffff0000u)));
    return {_mm256_and_ps(pairs.lo, mask), _mm256_and_ps(pairs.hi, mask)};
  }
  FT_INLINE V load_f16(const std::uint16_t* p) {
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
            _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
  }
  FT_INLINE void transpose8(__m256 (&r)[8]) {
    __m256 pairs[8], quads[8];  // columns of two and of four rows, within each half of a register
    for (int i = 0; i < 8; i += 2) {
      pairs[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
      pairs[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4)
      for (int j = 0; j < 2; ++j) {
        quads[i + 2 * j] =
            _mm256_shuffle_ps(pairs[i + j], pairs[i + j + 2], _MM_SHUFFLE(1, 0, 1, 0));
        quads[i + 2 * j + 1] =
            _mm256_shuffle_ps(pairs[i + j], pairs[i + j + 2], _MM_SHUFFLE(3, 2, 3, 2));
      }
    for (int i = 0; i < 4; ++i) {
      r[i] = _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x20);
      r[i + 4] = _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x31);
    }
  }
  // By quarters: those off the diagonal change places.
  FT_INLINE void transpose(V (&rows)[16]) {
    __m256 a[8], b[8], c[8], d[8];
    for (int i = 0; i < 8; ++i) {
      a[i] = rows[i].lo;
      b[i] = rows[i].hi;
      c[i] = rows[i + 8].lo;
      d[i] = rows[i + 8].hi;
    }
    transpose8(a);
    transpose8(b);
    transpose8(c);
    transpose8(d);
    for (int i = 0; i < 8; ++i) {
      rows[i] = {a[i], c[i]};
      rows[i + 8] = {b[i], d[i]};
    }
  }
  // Stops the compiler from folding the load into each use.
  FT_INLINE void keep_in_register(V& v) { asm("" : "+x"(v.lo), "+x"(v.hi)); }
  FT_INLINE void prefetch_near(const std::byte* p) {
    _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0);
  }
  FT_INLINE void prefetch_far(const std::byte* p) {
    _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1);
  }

  // Sixteen ids at once: counters c, c+1 in the low and c+2, c+3 in the high half share one 64-bit
  // multiply per lane, so four Philox blocks run in one register.
  FT_INLINE void noise_words(std::uint32_t first_id, const NoiseKey& key, std::uint32_t* words) {
    const __m256i low = _mm256_set1_epi64x(0xffffffffll);
    const auto set = [](std::uint32_t x) { return _mm256_set1_epi64x(static_cast<long long>(x)); };
    __m256i c0 = _mm256_add_epi64(set(first_id >> 2), _mm256_set_epi64x(3, 2, 1, 0));
    __m256i c1 = set(key.position), c2 = set(key.choice), c3 = _mm256_setzero_si256();
    std::uint32_t k0 = static_cast<std::uint32_t>(key.seed),
                  k1 = static_cast<std::uint32_t>(key.seed >> 32);
    const __m256i m0 = set(0xD2511F53u), m1 = set(0xCD9E8D57u);
    for (int round = 0; round < 10; ++round) {
      const __m256i p0 = _mm256_mul_epu32(m0, c0), p1 = _mm256_mul_epu32(m1, c2);
      const __m256i n0 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p1, 32), c1), set(k0));
      const __m256i n2 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p0, 32), c3), set(k1));
      c1 = _mm256_and_si256(p1, low);
      c3 = _mm256_and_si256(p0, low);
      c0 = n0;
      c2 = n2;
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    alignas(32) std::uint64_t t[4][4];
    _mm256_store_si256(reinterpret_cast<__m256i*>(t[0]), c0);
    _mm256_store_si256(reinterpret_cast<__m256i*>(t[1]), c1);
    _mm256_store_si256(reinterpret_cast<__m256i*>(t[2]), c2);
    _mm256_store_si256(reinterpret_cast<__m256i*>(t[3]), c3);
    for (int block = 0; block < 4; ++block)
      for (int i = 0; i < 4; ++i) words[4 * block + i] = static_cast<std::uint32_t>(t[i][block]);
  }
};

struct DotBf16 {
  static constexpr Activation kActivation = Activation::kF32;
  static constexpr int kOutputs = 16, kParts = 2;
  static constexpr int kStripOutputs = Simd::kStripOutputs;
  static constexpr bool kHalves = false;
  static constexpr int columns_for(int rows) { return Simd::columns_for(rows); }
  using Acc = Simd::V;
  using W = Simd::V;
  using A = Simd::V;
  FT_INLINE __m256 half(const std::byte* p, int part) {
    const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm256_castsi256_ps(
        part == 0 ? _mm256_slli_epi32(pairs, 16)
                  : _mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  FT_INLINE W weights(const std::byte* p, int part) { return {half(p, part), half(p + 32, part)}; }
  FT_INLINE A activation(const std::byte* p, int part) {
    return Simd::set1(reinterpret_cast<const float*>(p)[part]);
  }
  FT_INLINE Acc mac(const Acc& c, const W& w, const A& a) { return Simd::fma(w, a, c); }
  FT_INLINE Acc start(const float* c) { return Simd::load(c); }
  FT_INLINE void finish(float* c, const Acc& acc) { Simd::store(c, acc); }
  FT_INLINE Acc zero() { return Simd::zero(); }
};

// Integer sums are exact in any order. A column is eight outputs, so that the sums of six rows and
// two columns stay in registers.
struct DotI8 {
  static constexpr Activation kActivation = Activation::kI16Pairs;
  static constexpr int kOutputs = 8, kParts = 2;
  static constexpr bool kHalves = false;
  static constexpr int columns_for(int) { return 2; }
  static constexpr int kStripOutputs = 16;
  static constexpr int kept_columns_for(int) { return 0; }
  using Acc = __m256i;
  using W = __m256i;
  using A = __m256i;
  // Pairs as they lie, then their high weights.
  FT_INLINE W weights(const std::byte* p, int part) {
    const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return part == 0 ? pairs : _mm256_srai_epi16(pairs, 8);
  }
  FT_INLINE A activation(const std::byte* p, int part) {
    std::int32_t two;
    __builtin_memcpy(&two, p + 4 * part, sizeof two);
    return _mm256_set1_epi32(two);
  }
  // The compiler may not see that sums are equal in any order: it would add the products of several
  // steps first, keep the sums in memory meanwhile, and lose a quarter of the speed.
  FT_INLINE Acc mac(const Acc& c, const W& w, const A& a) {
    Acc sum = _mm256_add_epi32(c, _mm256_madd_epi16(w, a));
    asm("" : "+x"(sum));
    return sum;
  }
  FT_INLINE Acc begin(std::int32_t start) { return _mm256_set1_epi32(start); }
  FT_INLINE void add_to(float* c, const Acc& acc, float scale, bool first) {
    const __m256 chain = first ? _mm256_setzero_ps() : _mm256_loadu_ps(c);
    _mm256_storeu_ps(c, _mm256_fmadd_ps(_mm256_cvtepi32_ps(acc), _mm256_set1_ps(scale), chain));
  }
};

// Weights of four bits. A step of eight outputs is 32 bytes: k to k + 3 in the low halves, k + 4 to
// k + 7 in the high ones. Products are at most 15 * 127; the sixteen of four steps fit 16 bits.
struct DotI4 {
  static constexpr int kOutputs = 8, kSteps = 4, kMostWeight = 15;
  static_assert(fits_i16(4 * kSteps, kMostWeight));
  static constexpr int kShortColumns = 2;  // of short_int4_tile: twelve sums of six rows
  static constexpr int kept_columns_for(int) { return 0; }
  using Acc = __m256i;
  using Scales = __m256;
  static constexpr bool kHasTable = false;
  using Values = PlainCodes;
  struct W {
    __m256i part[8];
  };
  FT_INLINE W weights(const std::byte* p, PlainCodes) {
    const __m256i low = _mm256_set1_epi8(15);
    W w;
#pragma GCC unroll 4
    for (int step = 0; step < kSteps; ++step) {
      const __m256i both =
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + step * kStepBytes));
      w.part[2 * step] = _mm256_and_si256(both, low);
      w.part[2 * step + 1] = _mm256_and_si256(_mm256_srli_epi16(both, 4), low);
    }
    return w;
  }
  FT_INLINE Acc mac(const Acc& c, const W& w, const std::byte* a) {
    return add_parts(c, w.part, a);
  }
  // The products of all parts fit 16 bits.
  template <int kParts>
  FT_INLINE Acc add_parts(const Acc& c, const __m256i (&part)[kParts], const std::byte* a) {
    __m256i products = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int i = 0; i < kParts; ++i)
      products = _mm256_add_epi16(products, multiply(part[i], four_codes(a + 4 * i)));
    Acc sum = add_pairs(c, products);
    asm("" : "+x"(sum));  // as in DotI8
    return sum;
  }
  // Codes of the low or of the high half of a step.
  FT_INLINE Acc half_step(const std::byte* p, int half, PlainCodes) {
    const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm256_and_si256(half == 0 ? both : _mm256_srli_epi16(both, 4), _mm256_set1_epi8(15));
  }
  FT_INLINE Acc four_codes(const std::byte* a) {
    std::int32_t four;
    __builtin_memcpy(&four, a, sizeof four);
    return _mm256_set1_epi32(four);
  }
  FT_INLINE Acc multiply(const Acc& w, const Acc& a) { return _mm256_maddubs_epi16(w, a); }
  FT_INLINE Acc add_products(const Acc& c, const Acc& w, const Acc& a) {
    Acc sum = _mm256_add_epi16(c, _mm256_maddubs_epi16(w, a));
    asm("" : "+x"(sum));  // as in DotI8
    return sum;
  }
  FT_INLINE Acc add_pairs(const Acc& c, const Acc& products) {
    return _mm256_add_epi32(c, _mm256_madd_epi16(products, _mm256_set1_epi16(1)));
  }
  FT_INLINE Acc begin(std::int32_t start) { return _mm256_set1_epi32(start); }
  FT_INLINE Acc zeros(const std::byte* p) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  }
  // The sum of at most 64 codes is one of 16 bits, and the upper halves of zeros are 0.
  FT_INLINE Acc begin(const Acc& zeros, std::int32_t sum) {
    return _mm256_madd_epi16(zeros, _mm256_set1_epi32(sum));
  }
  FT_INLINE Scales scales(const std::byte* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  FT_INLINE void add_to(float* c, const Acc& acc, const Scales& s, float t, bool first) {
    const __m256 chain = first ? _mm256_setzero_ps() : _mm256_loadu_ps(c);
    const __m256 scale = _mm256_mul_ps(s, _mm256_set1_ps(t));
    _mm256_storeu_ps(c, _mm256_fmadd_ps(_mm256_cvtepi32_ps(acc), scale, chain));
  }
};

// Values of a table have signs, which go to the row's codes: a pair of products is at most
// 2 * 128 * 127 and fits 16 bits, two pairs do not.
struct DotI4Table : DotI4 {
  static constexpr int kShortColumns = 0;  // pairs do not fit
  static constexpr bool kHasTable = true;
  using Values = __m256i;
  FT_INLINE Values values(const std::int8_t* table) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
  }
  FT_INLINE W weights(const std::byte* p, const Values& values) {
    W w = DotI4::weights(p, {});
#pragma GCC unroll 8
    for (int i = 0; i < 2 * kSteps; ++i) w.part[i] = _mm256_shuffle_epi8(values, w.part[i]);
    return w;
  }
  FT_INLINE Acc mac(const Acc& c, const W& w, const std::byte* a) {
    Acc sum = c;
#pragma GCC unroll 8
    for (int i = 0; i < 2 * kSteps; ++i) {
      std::int32_t four;
      __builtin_memcpy(&four, a + 4 * i, sizeof four);
      const __m256i pairs = _mm256_maddubs_epi16(
          _mm256_abs_epi8(w.part[i]), _mm256_sign_epi8(_mm256_set1_epi32(four), w.part[i]));
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    }
    return sum;
  }
  FT_INLINE Acc begin_table(std::int32_t) { return _mm256_setzero_si256(); }
};

// Of kNonUniformTable the distances from its least value are looked up, and what that adds is taken
// away from the sum: no signs move. Products of two steps fit a sum of 16 bits, those of more steps
// do not.
struct DotI4NonUniform : DotI4 {
  static constexpr int kSteps = 2, kMostWeight = kMostNonUniformDistance;
  static_assert(fits_i16(4 * kSteps, kMostWeight));
  static constexpr bool kHasTable = true;
  using Values = __m256i;
  struct W {
    __m256i part[4];
  };
  FT_INLINE Values values(const std::int8_t* table) {
    const __m128i values = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
    return _mm256_broadcastsi128_si256(_mm_sub_epi8(values, _mm_set1_epi8(kLeastNonUniform)));
  }
  FT_INLINE Acc half_step(const std::byte* p, int half, const Values& values) {
    return _mm256_shuffle_epi8(values, DotI4::half_step(p, half, {}));
  }
  FT_INLINE W weights(const std::byte* p, const Values& values) {
    W w;
#pragma GCC unroll 4
    for (int i = 0; i < 2 * kSteps; ++i)
      w.part[i] = half_step(p + i / 2 * kStepBytes, i % 2, values);
    return w;
  }
  FT_INLINE Acc mac(const Acc& c, const W& w, const std::byte* a) {
    return add_parts(c, w.part, a);
  }
  FT_INLINE Acc begin_table(std::int32_t start) {
    return begin(start / kStartOverSum * -kLeastNonUniform);
  }
};
