// Attention of some rows of one sequence over one KV head. Positions are taken in spans of kSpan
// from 0 on, whatever the size of a block: one step of the online softmax each, so a row's bits
// depend on its own position and keys alone. Keys of a span are turned once so that a lane is a
// position; then a score is a chain along the head's dimensions. Included by isa_*.cc.
#pragma once

template <DType kType>
FT_INLINE Simd::V load_kv(const std::byte* p, std::int64_t n, float scale) {
  if constexpr (kType == DType::kF32) {
    return load_up_to(reinterpret_cast<const float*>(p), n);
  } else if constexpr (kType == DType::kF8E4M3) {
    float x[16];
    for (int i = 0; i < 16; ++i) x[i] = i < n ? e4m3_to_f32(static_cast<std::uint8_t>(p[i])) : 0.0f;
    return Simd::mul(Simd::load(x), Simd::set1(scale));
  } else {
    std::uint16_t padded[16];
    const std::uint16_t* h = reinterpret_cast<const std::uint16_t*>(p);
    if (n < 16) {
      for (int i = 0; i < 16; ++i) padded[i] = i < n ? h[i] : std::uint16_t{0};
      h = padded;
    }
    return kType == DType::kBf16 ? Simd::load_bf16(h) : Simd::load_f16(h);
  }
}

// Where the keys of a span are; a value is item.values_offset behind its key. Those from n_valid on
// are where the first is: they may be prefetched, not read.
struct SpanKeys {
  const std::byte* key[kMostSpan];
  std::int32_t n_valid = 0;
};

FT_INLINE void find_keys(const AttentionItem& item,
                         std::int32_t begin,
                         std::int32_t end,
                         std::int32_t most,
                         std::int64_t head_bytes,
                         SpanKeys& span) {
  span.n_valid = end - begin < most ? end - begin : most;
  std::int32_t block = begin / item.block_tokens, in_block = begin % item.block_tokens;
  for (std::int32_t t = 0; t < span.n_valid; ++block, in_block = 0) {
    const std::byte* key =
        item.keys + item.block_table[block] * item.block_stride + in_block * head_bytes;
    for (; in_block < item.block_tokens && t < span.n_valid; ++in_block, ++t, key += head_bytes)
      span.key[t] = key;
  }
  for (std::int32_t t = span.n_valid < 0 ? 0 : span.n_valid; t < most; ++t)
    span.key[t] = t > 0 ? span.key[0] : item.keys;
}

// Into the second cache: the first can wait for too few lines at a time to keep up with memory.
FT_INLINE void prefetch_line(const SpanKeys& span, std::int32_t t, std::int64_t at) {
  Simd::prefetch_far(span.key[t] + at);
}

// Keys as [head_dim][kSpan] in f32. Positions from n_valid on are zero. Prefetches the keys of the
// next span: a block holds too few bytes of one head for the hardware prefetcher to help. Values
// prefetch values, so that the requests are spread over the work.
template <DType kType>
FT_INLINE void load_keys(const AttentionItem& item,
                         const SpanKeys& span,
                         const SpanKeys& next,
                         float* keys) {
  constexpr auto kElement = static_cast<std::int64_t>(size_bytes(kType));
  std::int64_t d = 0;
  if constexpr (kType == DType::kBf16) {
    // Two dimensions in a lane: half the shuffles.
    for (; d + 32 <= item.head_dim && span.n_valid == kSpan; d += 32) {
      Simd::V pairs[16];
      for (std::int32_t t = 0; t < kSpan; ++t) {
        pairs[t] = Simd::load(reinterpret_cast<const float*>(span.key[t] + d * kElement));
        prefetch_line(next, t, d * kElement);
      }
      Simd::transpose(pairs);
      for (int i = 0; i < 16; ++i) {
        Simd::store(keys + (d + 2 * i) * kSpan, Simd::low_bf16(pairs[i]));
        Simd::store(keys + (d + 2 * i + 1) * kSpan, Simd::high_bf16(pairs[i]));
      }
    }
  }
  for (; d < item.head_dim; d += 16) {
    Simd::V rows[16];
    for (std::int32_t t = 0; t < kSpan; ++t) {
      rows[t] = t < span.n_valid
                    ? load_kv<kType>(span.key[t] + d * kElement, item.head_dim - d, item.key_scale)
                    : Simd::zero();
      if (d * kElement % 64 == 0) prefetch_line(next, t, d * kElement);
    }
    Simd::transpose(rows);
    for (int i = 0; i < 16; ++i) Simd::store(keys + (d + i) * kSpan, rows[i]);
  }
}

// Values of a span where the cache has them: for few queries. Those that see the same positions
// widen a value once, Simd::kValueQueries at a time.
template <DType kType>
struct CachedValues {
  const AttentionItem& item;
  const SpanKeys& span;
  const SpanKeys& next;
  FT_INLINE Simd::V load(const CachedValues& self, std::int32_t t, std::int64_t d) {
    const std::int64_t at =
        self.item.values_offset + d * static_cast<std::int64_t>(size_bytes(kType));
    if (at % 64 == 0) prefetch_line(self.next, t, at);
    return load_kv<kType>(self.span.key[t] + at, self.item.head_dim - d, self.item.value_scale);
  }
};

// The same as [kSpan][padded] in f32.
struct WidenedValues {
  const float* values;
  std::int64_t padded;
  FT_INLINE Simd::V load(const WidenedValues& self, std::int32_t t, std::int64_t d) {
    return Simd::load(self.values + t * self.padded + d);
  }
};

template <DType kType>
FT_INLINE void widen_values(const CachedValues<kType>& from, std::int64_t padded, float* values) {
  for (std::int32_t t = 0; t < from.span.n_valid; ++t)
    for (std::int64_t d = 0; d < padded; d += 16)
      Simd::store(values + t * padded + d, CachedValues<kType>::load(from, t, d));
}

// Scores of kQueries queries against a span: two chains each, even and odd dimensions.
template <int kQueries>
FT_INLINE void span_scores(
    const float* const* q, const float* keys, std::int32_t head_dim, float scale, float* scores) {
  Simd::V even[kQueries], odd[kQueries];
#pragma GCC unroll 4
  for (int i = 0; i < kQueries; ++i) even[i] = odd[i] = Simd::zero();
  std::int32_t d = 0;
  for (; d + 2 <= head_dim; d += 2) {
    Simd::V k0 = Simd::load(keys + d * kSpan), k1 = Simd::load(keys + (d + 1) * kSpan);
    Simd::keep_in_register(k0);
    Simd::keep_in_register(k1);
#pragma GCC unroll 4
    for (int i = 0; i < kQueries; ++i) {
      even[i] = Simd::fma(k0, Simd::set1(q[i][d]), even[i]);
      odd[i] = Simd::fma(k1, Simd::set1(q[i][d + 1]), odd[i]);
    }
  }
  if (d < head_dim) {
    const Simd::V k0 = Simd::load(keys + d * kSpan);
#pragma GCC unroll 4
    for (int i = 0; i < kQueries; ++i) even[i] = Simd::fma(k0, Simd::set1(q[i][d]), even[i]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < kQueries; ++i)
    Simd::store(scores + i * kSpan, Simd::mul(Simd::add(even[i], odd[i]), Simd::set1(scale)));
}

// One step of the online softmax: state = {max, sum}, acc = sum of weights times values so far.
// Scores become weights; of positions from n_valid on they are zero.
FT_INLINE void span_weights(
    float* scores, std::int32_t n_valid, std::int64_t padded, float* state, float* acc) {
  const float least = -__builtin_inff();
  Simd::V s = Simd::load(scores);
  if (n_valid < kSpan) {
    float masked[kSpan];
    for (int t = 0; t < kSpan; ++t) masked[t] = t < n_valid ? scores[t] : least;
    s = Simd::load(masked);
  }
  const float highest = Simd::lane_max(s);
  const float max = highest > state[0] ? highest : state[0];
  if (max > state[0]) {  // otherwise the factor is one
    float factor[16];
    Simd::store(factor, exp_lanes(Simd::set1(state[0] - max)));
    const Simd::V f = Simd::set1(factor[0]);
    state[1] = state[1] * factor[0];
    for (std::int64_t d = 0; d < padded; d += 16)
      Simd::store(acc + d, Simd::mul(Simd::load(acc + d), f));
    state[0] = max;
  }
  const Simd::V w = exp_lanes(Simd::sub(s, Simd::set1(max)));
  Simd::store(scores, w);
  state[1] = state[1] + Simd::lane_sum(w);
}

// Adds kQueries queries' weighted values of kVectors registers of dimensions from d on. A value is
// loaded once for all queries; each sum is one chain along the positions.
template <int kQueries, int kVectors, class Values>
FT_INLINE void add_dimensions(const float* const* weights,
                              std::int32_t n_valid,
                              const Values& values,
                              std::int64_t d,
                              float* const* acc) {
  Simd::V sum[kQueries][kVectors];
#pragma GCC unroll 4
  for (int i = 0; i < kQueries; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) sum[i][j] = Simd::load(acc[i] + d + 16 * j);
  for (std::int32_t t = 0; t < n_valid; ++t) {
    Simd::V v[kVectors];
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      v[j] = Values::load(values, t, d + 16 * j);
      if (kQueries > 1) Simd::keep_in_register(v[j]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < kQueries; ++i) {
      const Simd::V w = Simd::set1(weights[i][t]);
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) sum[i][j] = Simd::fma(w, v[j], sum[i][j]);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < kQueries; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) Simd::store(acc[i] + d + 16 * j, sum[i][j]);
}

// The same for all dimensions. The queries see the same positions: a weight of zero would still
// turn a sum of -0 into 0, and an infinite value into one that is not a number.
template <int kQueries, class Values>
FT_INLINE void add_values(const float* const* weights,
                          std::int32_t n_valid,
                          const Values& values,
                          std::int64_t padded,
                          float* const* acc) {
  constexpr int kVectors = Simd::value_vectors(kQueries);
  std::int64_t d = 0;
  for (; d + 16 * kVectors <= padded; d += 16 * kVectors)
    add_dimensions<kQueries, kVectors>(weights, n_valid, values, d, acc);
  for (; d < padded; d += 16) add_dimensions<kQueries, 1>(weights, n_valid, values, d, acc);
}

// Calls add.operator()<n>(i) for queries i .. i + n of a tile that see equally many positions: n is
// 4 to 1, and at most kMost.
template <int kMost, class Add>
FT_INLINE void each_alike(const std::int32_t* valid, int n_queries, const Add& add) {
  for (int i = 0; i < n_queries;) {
    int n_alike = 1;
    while (i + n_alike < n_queries && valid[i + n_alike] == valid[i]) ++n_alike;
    if (kMost >= 4 && n_alike >= 4) {
      add.template operator()<4>(i);
      i += 4;
    } else if (kMost >= 3 && n_alike >= 3) {
      add.template operator()<3>(i);
      i += 3;
    } else if (kMost >= 2 && n_alike >= 2) {
      add.template operator()<2>(i);
      i += 2;
    } else {
      add.template operator()<1>(i);
      i += 1;
    }
  }
}

template <class Values>
FT_INLINE void add_values_of_tile(const float* const* weights,
                                  const std::int32_t* valid,
                                  int n_queries,
                                  const Values& values,
                                  std::int64_t padded,
                                  float* const* acc) {
  each_alike<Simd::kValueQueries>(valid, n_queries, [&]<int kQueries>(int i) {
    add_values<kQueries>(weights + i, valid[i], values, padded, acc + i);
  });
}

constexpr int kQueryTile = 4;  // queries that take a span together

template <DType kType>
void attention(const AttentionItem& item) {
  const std::int64_t padded = (item.head_dim + 15) / 16 * 16;
  const std::int32_t n_queries = item.n_rows * item.group;
  float* keys = item.scratch;
  float* values = keys + kSpan * padded;
  float* acc = values + kSpan * padded;     // [n_queries, padded]
  float* state = acc + n_queries * padded;  // [n_queries, 2]
  float* scores = state + n_queries * 4;    // [n_queries, kSpan]
  const bool widens = n_queries > kQueryTile;
  std::int32_t last = 0;
  for (std::int32_t r = 0; r < item.n_rows; ++r)
    last = item.positions[r] > last ? item.positions[r] : last;
  for (std::int64_t i = 0; i < n_queries * padded; ++i) acc[i] = 0;
  for (std::int32_t i = 0; i < n_queries; ++i) {
    state[2 * i] = -__builtin_inff();
    state[2 * i + 1] = 0;
  }
  const std::int64_t head_bytes = item.head_dim * static_cast<std::int64_t>(size_bytes(kType));
  SpanKeys spans[2];  // by turns: this one and the next
  find_keys(item, 0, last + 1, kSpan, head_bytes, spans[0]);
  for (std::int32_t begin = 0; begin <= last; begin += kSpan) {
    const SpanKeys& span = spans[begin / kSpan % 2];
    SpanKeys& next = spans[(begin / kSpan + 1) % 2];
    find_keys(item, begin + kSpan, last + 1, kSpan, head_bytes, next);
    load_keys<kType>(item, span, next, keys);
    const CachedValues<kType> cached{item, span, next};
    if (widens) widen_values(cached, padded, values);
    const float* waiting[kQueryTile];
    const float* weights[kQueryTile];
    float* sums[kQueryTile];
    std::int32_t query[kQueryTile];
    std::int32_t valid[kQueryTile];
    for (int i = 0; i < kQueryTile; ++i) weights[i] = scores + i * kSpan;
    int n_waiting = 0;
    // All scores, then all weights, then all values: the instructions of different queries are
    // independent and overlap.
    const auto flush = [&] {
      int i = 0;
      for (; i + Simd::kScoreQueries <= n_waiting; i += Simd::kScoreQueries)
        span_scores<Simd::kScoreQueries>(waiting + i, keys, item.head_dim, item.scale,
                                         scores + i * kSpan);
      for (; i < n_waiting; ++i)
        span_scores<1>(waiting + i, keys, item.head_dim, item.scale, scores + i * kSpan);
      for (i = 0; i < n_waiting; ++i)
        span_weights(scores + i * kSpan, valid[i], padded, state + 2 * query[i], sums[i]);
      if (widens)
        add_values_of_tile(weights, valid, n_waiting, WidenedValues{values, padded}, padded, sums);
      else
        add_values_of_tile(weights, valid, n_waiting, cached, padded, sums);
      n_waiting = 0;
    };
    for (std::int32_t r = 0; r < item.n_rows; ++r) {
      const std::int32_t n_valid = item.positions[r] + 1 - begin;
      if (n_valid <= 0) continue;
      for (std::int32_t h = 0; h < item.group; ++h) {
        waiting[n_waiting] = item.q + r * item.q_stride + h * item.head_dim;
        query[n_waiting] = r * item.group + h;
        sums[n_waiting] = acc + query[n_waiting] * padded;
        valid[n_waiting] = n_valid < kSpan ? n_valid : kSpan;
        if (++n_waiting == kQueryTile) flush();
      }
    }
    flush();
  }
  for (std::int32_t r = 0; r < item.n_rows; ++r)
    for (std::int32_t h = 0; h < item.group; ++h) {
      const std::int32_t i = r * item.group + h;
      const Simd::V sum = Simd::set1(state[2 * i + 1]);
      float* out = item.out + r * item.out_stride + h * item.head_dim;
      for (std::int64_t d = 0; d < item.head_dim; d += 16)
        store_up_to(out + d, Simd::div(Simd::load(acc + i * padded + d), sum), item.head_dim - d);
    }
}
