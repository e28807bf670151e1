// Attention over bf16 caches by products of bf16 pairs, two to a lane. A query is the sum of two
// bf16, the weights of the softmax are rounded to one, sums and the softmax are f32. Positions are
// taken in spans of kWideSpan from 0 on, whatever the size of a block; a score is one chain along
// pairs of dimensions, a result one along pairs of positions. So a row's bits depend on its own
// position and keys alone. Included by isa_avx512_bf16.cc, after inner_attention.h.
#pragma once

constexpr int kWideSpan = kMostSpan;
constexpr int kWideTile = 8;  // queries that take a span together

struct PairDot {
  FT_INLINE Simd::V load(const std::uint32_t* p) {
    return _mm512_castsi512_ps(_mm512_loadu_si512(p));
  }
  FT_INLINE void store(std::uint32_t* p, Simd::V v) {
    _mm512_storeu_si512(p, _mm512_castps_si512(v));
  }
  FT_INLINE Simd::V all(std::uint32_t pair) {
    return _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(pair)));
  }
  FT_INLINE Simd::V mac(Simd::V sum, Simd::V a, Simd::V b) {
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
  }
  FT_INLINE Simd::V whole_row(const std::byte* p) {
    return _mm512_castsi512_ps(_mm512_loadu_si512(p));
  }
  // Up to 32 values, then zeros.
  FT_INLINE Simd::V row(const std::byte* p, std::int64_t n) {
    const auto mask = n >= 32 ? ~__mmask32{0} : static_cast<__mmask32>((std::uint32_t{1} << n) - 1);
    return _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(mask, p));
  }
  // Of two rows of 32 values: pairs of the first and of the last sixteen.
  FT_INLINE Simd::V pair_first(Simd::V a, Simd::V b) { return pair(a, b, 0); }
  FT_INLINE Simd::V pair_last(Simd::V a, Simd::V b) { return pair(a, b, 16); }
  FT_INLINE Simd::V pair(Simd::V a, Simd::V b, int from) {
    const __m512i first =
        _mm512_add_epi32(_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                         _mm512_set1_epi32(from));
    const __m512i order = _mm512_or_si512(
        first, _mm512_slli_epi32(_mm512_add_epi32(first, _mm512_set1_epi32(32)), 16));
    return _mm512_castsi512_ps(
        _mm512_permutex2var_epi16(_mm512_castps_si512(a), order, _mm512_castps_si512(b)));
  }
  FT_INLINE Simd::V without_second(Simd::V pairs) {
    return _mm512_castsi512_ps(
        _mm512_and_si512(_mm512_castps_si512(pairs), _mm512_set1_epi32(0xffff)));
  }
  FT_INLINE Simd::V round(Simd::V first, Simd::V last) {
    return (Simd::V)_mm512_cvtne2ps_pbh(last, first);
  }
  // Of 32 rounded values: the first and the last sixteen as f32.
  FT_INLINE Simd::V first_half(Simd::V v) {
    return widen(_mm512_castsi512_si256(_mm512_castps_si512(v)));
  }
  FT_INLINE Simd::V last_half(Simd::V v) {
    return widen(_mm512_extracti64x4_epi64(_mm512_castps_si512(v), 1));
  }
  FT_INLINE Simd::V widen(__m256i v) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16));
  }
};

constexpr std::int64_t pairs_of(std::int64_t n) { return (n + 1) / 2; }

// Values of position t of a span from dimension d on, keys or what lies `at` behind them. kWhole:
// all positions of the span and 32 dimensions are there, as nearly always.
template <bool kWhole>
FT_INLINE Simd::V span_row(const AttentionItem& item,
                           const SpanKeys& span,
                           std::int32_t t,
                           std::int64_t d,
                           std::int64_t at) {
  if constexpr (kWhole) return PairDot::whole_row(span.key[t] + at);
  return t < span.n_valid ? PairDot::row(span.key[t] + at, item.head_dim - d) : Simd::zero();
}

// Keys as [pairs of head_dim][kWideSpan]. Prefetches the keys of the next span.
template <bool kWhole>
FT_INLINE void load_pair_keys(const AttentionItem& item,
                              const SpanKeys& span,
                              const SpanKeys& next,
                              std::uint32_t* keys) {
  for (std::int64_t d = 0; d < item.head_dim; d += 32)
    for (std::int32_t begin = 0; begin < kWideSpan; begin += 16) {
      Simd::V pairs[16];
#pragma GCC unroll 16
      for (std::int32_t t = 0; t < 16; ++t) {
        pairs[t] = span_row<kWhole>(item, span, begin + t, d, 2 * d);
        prefetch_line(next, begin + t, 2 * d);
      }
      Simd::transpose(pairs);
      for (int i = 0; i < 16; ++i) PairDot::store(keys + (d / 2 + i) * kWideSpan + begin, pairs[i]);
    }
}

// A query is two bf16 for each dimension, what it is and what that leaves: first the pairs of the
// one, `padded` / 2 further on those of the other. Two chains, then their sum.
template <int kQueries>
FT_INLINE void pair_scores(const std::uint32_t* const* q,
                           const std::uint32_t* keys,
                           std::int64_t n_pairs,
                           std::int64_t padded,
                           float scale,
                           float* scores) {
  Simd::V high[kQueries][2], low[kQueries][2];
#pragma GCC unroll 4
  for (int i = 0; i < kQueries; ++i) high[i][0] = high[i][1] = low[i][0] = low[i][1] = Simd::zero();
  for (std::int64_t p = 0; p < n_pairs; ++p) {
    Simd::V k[2] = {PairDot::load(keys + p * kWideSpan), PairDot::load(keys + p * kWideSpan + 16)};
    Simd::keep_in_register(k[0]);
    Simd::keep_in_register(k[1]);
#pragma GCC unroll 4
    for (int i = 0; i < kQueries; ++i) {
      const Simd::V pair = PairDot::all(q[i][p]), rest = PairDot::all(q[i][padded / 2 + p]);
#pragma GCC unroll 2
      for (int j = 0; j < 2; ++j) {
        high[i][j] = PairDot::mac(high[i][j], k[j], pair);
        low[i][j] = PairDot::mac(low[i][j], k[j], rest);
      }
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < kQueries; ++i)
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j)
      Simd::store(scores + i * kWideSpan + 16 * j,
                  Simd::mul(Simd::add(high[i][j], low[i][j]), Simd::set1(scale)));
}

// Sixteen dimensions on each side, as pairs of what they are and of what that leaves.
FT_INLINE void split_query(const float* x,
                           std::int64_t n,
                           std::uint32_t* high,
                           std::uint32_t* low) {
  const Simd::V a = load_up_to(x, n);
  const Simd::V b = n > 16 ? load_up_to(x + 16, n - 16) : Simd::zero();
  const Simd::V rounded = PairDot::round(a, b);
  PairDot::store(high, rounded);
  PairDot::store(low, PairDot::round(Simd::sub(a, PairDot::first_half(rounded)),
                                     Simd::sub(b, PairDot::last_half(rounded))));
}

// One step of the online softmax, as span_weights(): max so far, sixteen sums of weights, sums of
// weighted values. The weights come as pairs of positions.
FT_INLINE void pair_weights(const float* scores,
                            std::int32_t n_valid,
                            std::int64_t padded,
                            float* max_so_far,
                            float* sums,
                            float* acc,
                            std::uint32_t* weights) {
  Simd::V s[2] = {Simd::load(scores), Simd::load(scores + 16)};
  if (n_valid < kWideSpan) {
    const auto valid = static_cast<std::uint32_t>((std::uint64_t{1} << n_valid) - 1);
    const Simd::V least = Simd::set1(-__builtin_inff());
    s[0] = _mm512_mask_mov_ps(least, static_cast<__mmask16>(valid), s[0]);
    s[1] = _mm512_mask_mov_ps(least, static_cast<__mmask16>(valid >> 16), s[1]);
  }
  const float highest = Simd::lane_max(Simd::max(s[0], s[1]));
  const float max = highest > *max_so_far ? highest : *max_so_far;
  Simd::V sum = Simd::load(sums);
  if (max > *max_so_far) {  // otherwise the factor is one
    const Simd::V f = exp_lanes(Simd::set1(*max_so_far - max));
    sum = Simd::mul(sum, f);
    for (std::int64_t d = 0; d < padded; d += 16)
      Simd::store(acc + d, Simd::mul(Simd::load(acc + d), f));
    *max_so_far = max;
  }
  const Simd::V w = PairDot::round(exp_lanes(Simd::sub(s[0], Simd::set1(max))),
                                   exp_lanes(Simd::sub(s[1], Simd::set1(max))));
  PairDot::store(weights, w);
  Simd::store(sums, Simd::add(sum, Simd::add(Simd::low_bf16(w), Simd::high_bf16(w))));
}

// Pairs of positions of a span's values. Lanes are sixteen dimensions from d on, two registers at a
// time.
template <bool kWhole>
struct CachedPairs {
  const AttentionItem& item;
  const SpanKeys& span;
  const SpanKeys& next;
  FT_INLINE void load(
      const CachedPairs& self, std::int64_t pair, std::int64_t d, Simd::V& first, Simd::V& last) {
    Simd::V rows[2];
    for (std::int32_t i = 0; i < 2; ++i) {
      const auto t = static_cast<std::int32_t>(2 * pair + i);
      const std::int64_t at = self.item.values_offset + 2 * d;
      prefetch_line(self.next, t, at);
      rows[i] = span_row<kWhole>(self.item, self.span, t, d, at);
    }
    first = PairDot::pair_first(rows[0], rows[1]);
    last = PairDot::pair_last(rows[0], rows[1]);
  }
};

// The same as [kWideSpan / 2][padded].
struct KeptPairs {
  const std::uint32_t* values;
  std::int64_t padded;
  FT_INLINE void load(
      const KeptPairs& self, std::int64_t pair, std::int64_t d, Simd::V& first, Simd::V& last) {
    first = PairDot::load(self.values + pair * self.padded + d);
    last = PairDot::load(self.values + pair * self.padded + d + 16);
  }
};

template <bool kWhole>
FT_INLINE void keep_pairs(const CachedPairs<kWhole>& from,
                          std::int64_t padded,
                          std::uint32_t* values) {
  for (std::int64_t pair = 0; pair < pairs_of(from.span.n_valid); ++pair)
    for (std::int64_t d = 0; d < padded; d += 32) {
      Simd::V first, last;
      CachedPairs<kWhole>::load(from, pair, d, first, last);
      PairDot::store(values + pair * padded + d, first);
      PairDot::store(values + pair * padded + d + 16, last);
    }
}

// Adds kQueries queries' weighted values of 32 * kHalves dimensions from d on. The queries see the
// same positions; of an odd number, the last pair's second value may be anything.
template <int kQueries, int kHalves, class Values>
FT_INLINE void add_pair_dimensions(const std::uint32_t* const* weights,
                                   std::int32_t n_valid,
                                   const Values& values,
                                   std::int64_t d,
                                   float* const* acc) {
  constexpr int kVectors = 2 * kHalves;
  Simd::V sum[kQueries][kVectors];
#pragma GCC unroll 4
  for (int i = 0; i < kQueries; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) sum[i][j] = Simd::load(acc[i] + d + 16 * j);
  const auto add = [&](std::int64_t pair, bool is_half) {
    Simd::V v[kVectors];
#pragma GCC unroll 2
    for (int j = 0; j < kVectors; j += 2) Values::load(values, pair, d + 16 * j, v[j], v[j + 1]);
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      if (is_half) v[j] = PairDot::without_second(v[j]);
      Simd::keep_in_register(v[j]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < kQueries; ++i) {
      const Simd::V w = PairDot::all(weights[i][pair]);
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) sum[i][j] = PairDot::mac(sum[i][j], v[j], w);
    }
  };
  const std::int64_t n_whole = n_valid / 2;
  for (std::int64_t pair = 0; pair < n_whole; ++pair) add(pair, false);
  if (n_valid % 2 != 0) add(n_whole, true);
#pragma GCC unroll 4
  for (int i = 0; i < kQueries; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) Simd::store(acc[i] + d + 16 * j, sum[i][j]);
}

template <class Values>
FT_INLINE void add_pairs_of_tile(const std::uint32_t* const* weights,
                                 const std::int32_t* valid,
                                 int n_queries,
                                 const Values& values,
                                 std::int64_t padded,
                                 float* const* acc) {
  each_alike<4>(valid, n_queries, [&]<int kQueries>(int i) {
    std::int64_t d = 0;
    for (; d + 64 <= padded; d += 64)
      add_pair_dimensions<kQueries, 2>(weights + i, valid[i], values, d, acc + i);
    for (; d < padded; d += 32)
      add_pair_dimensions<kQueries, 1>(weights + i, valid[i], values, d, acc + i);
  });
}

// Queries of a tile: where they are and what each of them sees.
struct WideTile {
  int n = 0;
  const std::uint32_t* q[kWideTile];
  float* max[kWideTile];
  float* sums[kWideTile];
  float* acc[kWideTile];
  std::int32_t valid[kWideTile];
  const std::uint32_t* weights[kWideTile];
  alignas(64) float scores[kWideTile * kWideSpan];
  alignas(64) std::uint32_t pairs[kWideTile * kWideSpan / 2];
};

FT_INLINE void score_tile(WideTile& tile,
                          const std::uint32_t* keys,
                          std::int64_t n_pairs,
                          std::int64_t padded,
                          float scale) {
  int i = 0;
  const auto score = [&]<int kQueries>() {
    pair_scores<kQueries>(tile.q + i, keys, n_pairs, padded, scale, tile.scores + i * kWideSpan);
    i += kQueries;
  };
  while (tile.n - i >= 4) score.template operator()<4>();
  if (tile.n - i == 3) score.template operator()<3>();
  if (tile.n - i == 2) score.template operator()<2>();
  if (tile.n - i == 1) score.template operator()<1>();
}

// The scratch of an item, by queries i = row * group + head.
struct PairSpace {
  std::int64_t padded;    // dimensions, in whole registers of pairs
  std::int64_t n_pairs;   // of dimensions
  bool keeps;             // values as pairs, for all that read them
  std::uint32_t* keys;    // [padded / 2, kWideSpan]
  std::uint32_t* values;  // [kWideSpan / 2, padded]
  std::uint32_t* q;       // [n_queries, 2, padded / 2]
  float* acc;             // [n_queries, padded]
  float* max;             // [n_queries]
  float* sums;            // [n_queries, 16]
  WideTile tile;
};

template <bool kWhole>
FT_INLINE void flush_tile(const AttentionItem& item,
                          const CachedPairs<kWhole>& cached,
                          PairSpace& space) {
  WideTile& tile = space.tile;
  score_tile(tile, space.keys, space.n_pairs, space.padded, item.scale);
  for (int i = 0; i < tile.n; ++i)
    pair_weights(tile.scores + i * kWideSpan, tile.valid[i], space.padded, tile.max[i],
                 tile.sums[i], tile.acc[i], tile.pairs + i * kWideSpan / 2);
  if (space.keeps)
    add_pairs_of_tile(tile.weights, tile.valid, tile.n, KeptPairs{space.values, space.padded},
                      space.padded, tile.acc);
  else
    add_pairs_of_tile(tile.weights, tile.valid, tile.n, cached, space.padded, tile.acc);
  tile.n = 0;
}

// All queries take the span that begins at position `begin`.
template <bool kWhole>
void take_span(const AttentionItem& item,
               const CachedPairs<kWhole>& cached,
               std::int32_t begin,
               PairSpace& space) {
  load_pair_keys<kWhole>(item, cached.span, cached.next, space.keys);
  if (space.keeps) keep_pairs(cached, space.padded, space.values);
  WideTile& tile = space.tile;
  for (std::int32_t r = 0; r < item.n_rows; ++r) {
    const std::int32_t n_valid = item.positions[r] + 1 - begin;
    if (n_valid <= 0) continue;
    for (std::int32_t h = 0; h < item.group; ++h) {
      const std::int64_t i = r * item.group + h;
      tile.q[tile.n] = space.q + i * space.padded;
      tile.max[tile.n] = space.max + i;
      tile.sums[tile.n] = space.sums + 16 * i;
      tile.acc[tile.n] = space.acc + i * space.padded;
      tile.valid[tile.n] = n_valid < kWideSpan ? n_valid : kWideSpan;
      if (++tile.n == kWideTile) flush_tile(item, cached, space);
    }
  }
  flush_tile(item, cached, space);
}

void attention_by_pairs(const AttentionItem& item) {
  const std::int64_t padded = (item.head_dim + 31) / 32 * 32;
  const std::int32_t n_queries = item.n_rows * item.group;
  PairSpace space{.padded = padded, .n_pairs = pairs_of(item.head_dim), .keeps = n_queries > 4};
  space.keys = reinterpret_cast<std::uint32_t*>(item.scratch);
  space.values = space.keys + padded / 2 * kWideSpan;
  space.q = space.values + padded / 2 * kWideSpan;
  space.acc = reinterpret_cast<float*>(space.q + n_queries * padded);
  space.max = space.acc + n_queries * padded;
  space.sums = space.max + n_queries;
  for (int i = 0; i < kWideTile; ++i) space.tile.weights[i] = space.tile.pairs + i * kWideSpan / 2;
  std::int32_t last = 0;
  for (std::int32_t r = 0; r < item.n_rows; ++r) {
    last = item.positions[r] > last ? item.positions[r] : last;
    for (std::int32_t h = 0; h < item.group; ++h) {
      const std::int64_t i = r * item.group + h;
      const float* from = item.q + r * item.q_stride + h * item.head_dim;
      for (std::int64_t d = 0; d < padded; d += 32)
        split_query(from + d, item.head_dim - d, space.q + i * padded + d / 2,
                    space.q + i * padded + (padded + d) / 2);
      for (std::int64_t d = 0; d < padded; ++d) space.acc[i * padded + d] = 0;
      space.max[i] = -__builtin_inff();
      Simd::store(space.sums + 16 * i, Simd::zero());
    }
  }
  const std::int64_t head_bytes = 2 * std::int64_t{item.head_dim};
  SpanKeys spans[2];  // by turns: this one and the next
  find_keys(item, 0, last + 1, kWideSpan, head_bytes, spans[0]);
  for (std::int32_t begin = 0; begin <= last; begin += kWideSpan) {
    const SpanKeys& span = spans[begin / kWideSpan % 2];
    SpanKeys& next = spans[(begin / kWideSpan + 1) % 2];
    find_keys(item, begin + kWideSpan, last + 1, kWideSpan, head_bytes, next);
    if (span.n_valid == kWideSpan && item.head_dim % 32 == 0)
      take_span(item, CachedPairs<true>{item, span, next}, begin, space);
    else
      take_span(item, CachedPairs<false>{item, span, next}, begin, space);
  }
  for (std::int32_t r = 0; r < item.n_rows; ++r)
    for (std::int32_t h = 0; h < item.group; ++h) {
      const std::int64_t i = r * item.group + h;
      const Simd::V sum = Simd::set1(Simd::lane_sum(Simd::load(space.sums + 16 * i)));
      float* out = item.out + r * item.out_stride + h * item.head_dim;
      for (std::int64_t d = 0; d < item.head_dim; d += 16)
        store_up_to(out + d, Simd::div(Simd::load(space.acc + i * padded + d), sum),
                    item.head_dim - d);
    }
}
