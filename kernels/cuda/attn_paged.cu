// Paged attention for any number of rows. Queries are (row, head of the group) packed, 16 to a
// block, so that the heads that share K and V read them once. Positions are cut into runs at fixed
// places (kernels/include/fragment.h); each run is its own softmax over spans of 32 positions, and
// runs are merged from the first to the last. With few rows the runs are blocks of their own and
// the last of a tile to finish merges them all; with many, one block walks all runs and merges as
// it goes. Same bits either way, and none depends on neighbours, batch or where blocks lie. f32
// arithmetic; beside bf16 and fp8 keys and values, spans that a query has whole go through the
// matrix unit with q and weights as sums of three bf16, which loses nothing.
//
// Launches overlap: q, new keys and values come from the kernel in front, so every thread waits
// before its first access to memory and reads nothing early. Counters of arrivals are zero between
// launches: the block that merges resets its counter, so a recording can be replayed.
#include <algorithm>
#include <type_traits>

#include "common/base/check.h"
#include "common/base/result.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/include/layout.h"

namespace foretoken::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr int kQueries = 16;  // of a block
constexpr int kPerWarp = kQueries / kWarps;
constexpr int kSpan = 32;  // positions of a step: one a lane
constexpr int kMaxHeadDim = 256;
constexpr float kNothing = -__builtin_inff();

struct AttentionArgs {
  const float* q;
  const std::int32_t* positions;
  const std::int32_t* row_begin;
  const std::int32_t* block_tables;
  const std::byte* blocks;
  const float* scales;  // PagedKv::scales
  float* out;
  float* partial;  // [n_rows * n_heads][n_runs][head_dim + 2], or null: one block walks all runs
  std::uint32_t* arrivals;  // [tiles][n_kv_heads], with partial
  KvGeometry geometry;
  std::int32_t n_sequences;
  std::int32_t max_blocks;
  std::int32_t n_heads;
  std::int32_t layer;
  std::int32_t n_runs;
  float scale;
};

// The sequence and the first packed query of tile `tile`; sequence < 0: no such tile.
struct Tile {
  std::int32_t sequence;
  std::int32_t first;
  std::int32_t n;  // queries of the sequence from `first` on
};
__device__ __forceinline__ Tile find_tile(const AttentionArgs& p,
                                          std::int32_t tile,
                                          std::int32_t group) {
  for (std::int32_t s = 0; s < p.n_sequences; ++s) {
    const std::int32_t n = (p.row_begin[s + 1] - p.row_begin[s]) * group;
    const std::int32_t n_tiles = (n + kQueries - 1) / kQueries;
    if (tile < n_tiles) return {s, tile * kQueries, n - tile * kQueries};
    tile -= n_tiles;
  }
  return {-1, 0, 0};
}

template <DType kKv>
__device__ __forceinline__ float load_kv(const std::byte* at, int i) {
  if constexpr (kKv == DType::kF32) return reinterpret_cast<const float*>(at)[i];
  if constexpr (kKv == DType::kF8E4M3) return e4m3_to_f32(static_cast<std::uint8_t>(at[i]));
  const std::uint16_t h = reinterpret_cast<const std::uint16_t*>(at)[i];
  return kKv == DType::kBf16 ? bf16_to_f32(h) : f16_to_f32(h);
}

// Element i of the 16 bytes of a load.
template <DType kKv>
__device__ __forceinline__ float element(const Words4& words, int i) {
  constexpr int kBytes = static_cast<int>(size_bytes(kKv));
  const std::uint32_t word = words.w[i * kBytes / 4] >> (i * kBytes % 4 * 8);
  if constexpr (kKv == DType::kF32) return bits_as<float>(word);
  if constexpr (kKv == DType::kF8E4M3) return e4m3_to_f32(static_cast<std::uint8_t>(word));
  const auto h = static_cast<std::uint16_t>(word);
  return kKv == DType::kBf16 ? bf16_to_f32(h) : f16_to_f32(h);
}

// A softmax under way: largest score, sum of weights, weighted values (a lane holds every 32nd).
template <int kDims>
struct Softmax {
  float max = kNothing;
  float sum = 0;
  float acc[kDims] = {};
};

// into = into followed by `later`.
template <int kDims>
__device__ __forceinline__ void merge(Softmax<kDims>& into, const Softmax<kDims>& later) {
  const float max = fmaxf(into.max, later.max);
  const float before = expf(into.max - max), after = expf(later.max - max);
  into.sum = into.sum * before + later.sum * after;
#pragma unroll
  for (int d = 0; d < kDims; ++d) into.acc[d] = into.acc[d] * before + later.acc[d] * after;
  into.max = max;
}

// A span in shared memory as f32: [kSpan][head_dim + 1] each.
struct WideSpan {
  float* keys;
  float* values;
  int pitch;
  __device__ __forceinline__ float key(int j, int d) const { return keys[j * pitch + d]; }
  __device__ __forceinline__ float value(int j, int d) const { return values[j * pitch + d]; }
  template <DType kKv>
  __device__ __forceinline__ void put(
      int j, int d, const Words4& k, const Words4& v, float key_scale, float value_scale) const {
    constexpr int kEach = 16 / static_cast<int>(size_bytes(kKv));
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      keys[j * pitch + d + e] = element<kKv>(k, e) * key_scale;
      values[j * pitch + d + e] = element<kKv>(v, e) * value_scale;
    }
  }
};

// What the matrix unit works on, in shared memory: 16-bit operands, pitches that spread a
// fragment's rows over the banks, and what passes between the warps.
template <int kDims>
struct NarrowSpan {
  static constexpr int kHeadDim = 32 * kDims;
  static constexpr int kPitch = kHeadDim + 8;  // of a row of dimensions
  static constexpr int kAcross = kSpan + 8;    // of a row of positions
  static constexpr int kScores = kSpan + 1;
  static constexpr int kTerms = 3;
  static constexpr int kBytes = 2 * (kTerms * kQueries * kPitch + kSpan * kPitch +
                                     kHeadDim * kAcross + kTerms * kQueries * kAcross) +
                                4 * (kQueries * kScores + kQueries);
  static_assert(2 * kSpan * kPitch >= 4 * kQueries * kHeadDim);
  std::uint16_t* keys;    // [kSpan][kPitch]; at the end of a run the sums, [kQueries][kHeadDim] f32
  std::uint16_t* values;  // [kHeadDim][kAcross]
  std::uint16_t* q;       // [kTerms][kQueries][kPitch]
  std::uint16_t* weights;  // [kTerms][kQueries][kAcross]
  float* scores;           // [kQueries][kScores]
  float* factors;          // [kQueries]: what sums so far are multiplied with
  __device__ __forceinline__ explicit NarrowSpan(std::byte* at)
      : keys(reinterpret_cast<std::uint16_t*>(at)),
        values(keys + kSpan * kPitch),
        q(values + kHeadDim * kAcross),
        weights(q + kTerms * kQueries * kPitch),
        scores(reinterpret_cast<float*>(weights + kTerms * kQueries * kAcross)),
        factors(scores + kQueries * kScores) {}
  __device__ __forceinline__ float key(int j, int d) const {
    return bf16_to_f32(keys[j * kPitch + d]);
  }
  __device__ __forceinline__ float value(int j, int d) const {
    return bf16_to_f32(values[d * kAcross + j]);
  }
  // Without their scales: these are in the scale of the scores and in the result.
  template <DType kKv>
  __device__ __forceinline__ void put(
      int j, int d, const Words4& k, const Words4& v, float, float) const {
    constexpr int kEach = 16 / static_cast<int>(size_bytes(kKv));
    const auto pair = [](const Words4& words, int i) {
      if constexpr (kKv == DType::kBf16) return words.w[i];
      // A code is a bf16 exactly.
      return bits_as<std::uint32_t>(element<kKv>(words, 2 * i)) >> 16 |
             (bits_as<std::uint32_t>(element<kKv>(words, 2 * i + 1)) & 0xffff0000u);
    };
#pragma unroll
    for (int i = 0; i < kEach / 2; ++i) {
      const std::uint32_t value = pair(v, i);
      reinterpret_cast<std::uint32_t*>(keys + j * kPitch + d)[i] = pair(k, i);
      values[(d + 2 * i) * kAcross + j] = static_cast<std::uint16_t>(value);
      values[(d + 2 * i + 1) * kAcross + j] = static_cast<std::uint16_t>(value >> 16);
    }
  }
};

template <class Span>
__device__ __forceinline__ Span make_span(float* at, int head_dim) {
  if constexpr (std::is_same_v<Span, WideSpan>)
    return {at, at + kSpan * (head_dim + 1), head_dim + 1};
  else
    return Span(reinterpret_cast<std::byte*>(at));
}

// x as a sum of three bf16: exactly, but for what lies below the smallest.
__device__ __forceinline__ void split(float x, std::uint16_t* to, int stride) {
#pragma unroll
  for (int term = 0; term < 3; ++term) {
    const std::uint16_t part = f32_to_bf16(x);
    to[term * stride] = part;
    x = x - bf16_to_f32(part);
  }
}

// One span for the queries of a warp: lanes are positions for the scores, then dimensions for the
// values; what is read of the span is read once for all. Query i has the first n_valid[i] positions
// of the span, or none. q: [kPerWarp][head_dim].
template <int kDims, class Span>
__device__ __forceinline__ void absorb_span(Softmax<kDims> (&state)[kPerWarp],
                                            const float* q,
                                            const Span& span,
                                            const std::int32_t (&n_valid)[kPerWarp],
                                            int head_dim,
                                            float scale) {
  bool any = false;
#pragma unroll
  for (int i = 0; i < kPerWarp; ++i) any = any || n_valid[i] > 0;
  if (!any) return;
  const int lane = lane_id();
  float even[kPerWarp] = {}, odd[kPerWarp] = {};
  for (int d = 0; d + 1 < head_dim; d += 2) {
    const float first = span.key(lane, d), second = span.key(lane, d + 1);
#pragma unroll
    for (int i = 0; i < kPerWarp; ++i) {
      even[i] = fma32(q[i * head_dim + d], first, even[i]);
      odd[i] = fma32(q[i * head_dim + d + 1], second, odd[i]);
    }
  }
  if (head_dim % 2 != 0)
#pragma unroll
    for (int i = 0; i < kPerWarp; ++i)
      even[i] = fma32(q[i * head_dim + head_dim - 1], span.key(lane, head_dim - 1), even[i]);
  float weight[kPerWarp];
  std::int32_t most = 0;
#pragma unroll
  for (int i = 0; i < kPerWarp; ++i) {
    weight[i] = 0;
    if (n_valid[i] <= 0) continue;
    most = n_valid[i] > most ? n_valid[i] : most;
    const float score = lane < n_valid[i] ? (even[i] + odd[i]) * scale : kNothing;
    float max = score;
    for (int step = 16; step > 0; step /= 2) max = fmaxf(max, shuffle_xor(max, step));
    max = fmaxf(max, state[i].max);  // passes over a NaN, which comes back through its weight
    const float before = expf(state[i].max - max);
    weight[i] = lane < n_valid[i] ? expf(score - max) : 0.0f;
    state[i].sum = state[i].sum * before + warp_sum(weight[i]);
#pragma unroll
    for (int d = 0; d < kDims; ++d) state[i].acc[d] *= before;
    state[i].max = max;
  }
  for (int j = 0; j < most; ++j) {
    float value[kDims];
#pragma unroll
    for (int d = 0; d < kDims; ++d)
      value[d] = d * 32 + lane < head_dim ? span.value(j, d * 32 + lane) : 0.0f;
#pragma unroll
    for (int i = 0; i < kPerWarp; ++i) {
      if (j >= n_valid[i]) continue;  // not even a weight of zero: the value may be NaN
      const float w = shuffle(weight[i], j);
#pragma unroll
      for (int d = 0; d < kDims; ++d) state[i].acc[d] = fma32(w, value[d], state[i].acc[d]);
    }
  }
}

// Of a head of an fp8 cache; times one changes no bit.
struct KvScales {
  float of_keys = 1.0f;
  float of_values = 1.0f;
};
template <DType kKv>
__device__ __forceinline__ KvScales scales_of(const AttentionArgs& p, std::int32_t kv_head) {
  if (kKv != DType::kF8E4M3 || p.scales == nullptr) return {};
  return {p.scales[kv_scale_index(p.geometry, p.layer, false, kv_head)],
          p.scales[kv_scale_index(p.geometry, p.layer, true, kv_head)]};
}

// Whether every head of a position begins at a multiple of 16 bytes.
FORETOKEN_HD bool loads_whole(const AttentionArgs& p, int each) {
  return p.geometry.head_dim % each == 0 && reinterpret_cast<std::uintptr_t>(p.blocks) % 16 == 0;
}

// Keys and values of positions begin .. begin + n into `span`. 16 bytes a load
// where heads allow; two lanes take 32 bytes of a position, the next two those of the next, so that
// stores to shared memory meet no bank more than twice.
template <DType kKv, class Span>
__device__ __forceinline__ void load_span(const AttentionArgs& p,
                                          std::int32_t sequence,
                                          std::int32_t kv_head,
                                          std::int32_t begin,
                                          int n,
                                          const KvScales& scales,
                                          const Span& span) {
  const KvGeometry& g = p.geometry;
  const std::int32_t* table = p.block_tables + std::int64_t{sequence} * p.max_blocks;
  const auto key_of = [&](int j) {
    const std::int32_t position = begin + j, block = table[position / g.block_tokens];
    return p.blocks +
           kv_offset(g, block, position % g.block_tokens, p.layer, KvHalf::kKeys, kv_head);
  };
  constexpr int kBytes = static_cast<int>(size_bytes(kKv)), kEach = 16 / kBytes;
  [[maybe_unused]] const bool whole = loads_whole(p, kEach);
  if constexpr (std::is_same_v<Span, WideSpan>)
    if (!whole) {
      for (int i = static_cast<int>(threadIdx.x); i < n * g.head_dim; i += kThreads) {
        const int j = i / g.head_dim, d = i % g.head_dim;
        const std::byte* key = key_of(j);
        span.keys[j * span.pitch + d] = load_kv<kKv>(key, d) * scales.of_keys;
        span.values[j * span.pitch + d] = load_kv<kKv>(key + g.plane_bytes(), d) * scales.of_values;
      }
      return;
    }
  for (int i = static_cast<int>(threadIdx.x);; i += kThreads) {
    const int j = i / 2 % kSpan, d = (i / (2 * kSpan) * 2 + i % 2) * kEach;
    if (i / (2 * kSpan) * 2 * kEach >= g.head_dim) break;
    if (j >= n || d >= g.head_dim) continue;
    const std::byte* key = key_of(j) + d * kBytes;
    span.template put<kKv>(j, d, load_words(key), load_words(key + g.plane_bytes()), scales.of_keys,
                           scales.of_values);
  }
}

// Spans that a query has whole, on the matrix unit: all 16 queries of the block at once, q and
// weights as three bf16 each, so nothing is lost beside bf16 keys and values. A row of a product
// never sees another, and whether a span is whole depends on the query's position alone; the last
// span of a query, if it is not whole, is absorb_span's.
template <int kDims>
struct WholeSpans {
  using Span = NarrowSpan<kDims>;
  float max[kPerWarp];  // of this warp's own queries
  float sum[kPerWarp];
  float acc[kDims][4];  // of all queries, every fourth part of the dimensions, as C fragments

  __device__ __forceinline__ WholeSpans() {
#pragma unroll
    for (int i = 0; i < kPerWarp; ++i) {
      max[i] = kNothing;
      sum[i] = 0;
    }
#pragma unroll
    for (int tile = 0; tile < kDims; ++tile)
#pragma unroll
      for (int i = 0; i < 4; ++i) acc[tile][i] = 0;
  }

  // The A fragment of rows `from` ([kQueries][pitch]), K from k on.
  static __device__ __forceinline__ void load_a(const std::uint16_t* from,
                                                int pitch,
                                                int k,
                                                std::uint32_t (&a)[4]) {
    const int lane = lane_id();
#pragma unroll
    for (int i = 0; i < 4; ++i)
      a[i] = *reinterpret_cast<const std::uint32_t*>(from + fragment::a_row(lane, 2 * i) * pitch +
                                                     k + fragment::a_k(lane, 2 * i));
  }
  // The B fragment of columns `from` ([8][pitch]).
  static __device__ __forceinline__ void load_b(const std::uint16_t* from,
                                                int pitch,
                                                int k,
                                                std::uint32_t (&b)[2]) {
    const int lane = lane_id();
#pragma unroll
    for (int i = 0; i < 2; ++i)
      b[i] = *reinterpret_cast<const std::uint32_t*>(from + fragment::b_token(lane) * pitch + k +
                                                     fragment::b_k(lane, 2 * i));
  }

  // By all warps. whole(i): of this warp's own query i; whole_row(r): of query r of the block.
  template <class Whole, class WholeRow>
  __device__ __forceinline__ void absorb(const Span& span,
                                         float scale,
                                         const Whole& whole,
                                         const WholeRow& whole_row) {
    const int warp = warp_id(), lane = lane_id();
    float c[4] = {};
    for (int k = 0; k < Span::kHeadDim; k += fragment::kStepK) {
      std::uint32_t b[2];
      load_b(span.keys + 8 * warp * Span::kPitch, Span::kPitch, k, b);
#pragma unroll
      for (int term = Span::kTerms - 1; term >= 0; --term) {
        std::uint32_t a[4];
        load_a(span.q + term * kQueries * Span::kPitch, Span::kPitch, k, a);
        mma_bf16(c, a, b[0], b[1]);
      }
    }
#pragma unroll
    for (int i = 0; i < fragment::kCValues; ++i)
      span.scores[fragment::c_row(lane, i) * Span::kScores + 8 * warp +
                  fragment::c_token(lane, i)] = c[i];
    sync_block();
#pragma unroll
    for (int i = 0; i < kPerWarp; ++i) {
      if (!whole(i)) continue;
      const int row = warp * kPerWarp + i;
      const float score = span.scores[row * Span::kScores + lane] * scale;
      float highest = score;
      for (int step = 16; step > 0; step /= 2) highest = fmaxf(highest, shuffle_xor(highest, step));
      highest = fmaxf(highest, max[i]);  // passes over a NaN, which comes back through its weight
      const float before = expf(max[i] - highest), weight = expf(score - highest);
      sum[i] = sum[i] * before + warp_sum(weight);
      max[i] = highest;
      split(weight, span.weights + row * Span::kAcross + lane, kQueries * Span::kAcross);
      if (lane == 0) span.factors[row] = before;
    }
    sync_block();
    const bool first = whole_row(fragment::c_row(lane, 0)),
               second = whole_row(fragment::c_row(lane, 2));
    float next[kDims][4];
#pragma unroll
    for (int tile = 0; tile < kDims; ++tile)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        next[tile][i] = acc[tile][i] * span.factors[fragment::c_row(lane, i)];
#pragma unroll
    for (int k = 0; k < kSpan; k += fragment::kStepK) {
#pragma unroll
      for (int term = Span::kTerms - 1; term >= 0; --term) {
        std::uint32_t a[4];
        load_a(span.weights + term * kQueries * Span::kAcross, Span::kAcross, k, a);
#pragma unroll
        for (int tile = 0; tile < kDims; ++tile) {
          std::uint32_t b[2];
          load_b(span.values + 8 * (warp * kDims + tile) * Span::kAcross, Span::kAcross, k, b);
          mma_bf16(next[tile], a, b[0], b[1]);
        }
      }
    }
#pragma unroll
    for (int tile = 0; tile < kDims; ++tile)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        acc[tile][i] = (i < 2 ? first : second) ? next[tile][i] : acc[tile][i];
  }

  // At the end of a run, by all warps: state = the whole spans followed by what `state` has.
  __device__ __forceinline__ void finish(const Span& span,
                                         Softmax<kDims> (&state)[kPerWarp]) const {
    const int warp = warp_id(), lane = lane_id();
    float* sums = reinterpret_cast<float*>(span.keys);
    sync_block();
#pragma unroll
    for (int tile = 0; tile < kDims; ++tile)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        sums[fragment::c_row(lane, i) * Span::kHeadDim + 8 * (warp * kDims + tile) +
             fragment::c_token(lane, i)] = acc[tile][i];
    sync_block();
#pragma unroll
    for (int i = 0; i < kPerWarp; ++i) {
      if (sum[i] == 0) continue;  // the query has no whole span here
      Softmax<kDims> all;
      all.max = max[i];
      all.sum = sum[i];
#pragma unroll
      for (int d = 0; d < kDims; ++d)
        all.acc[d] = sums[(warp * kPerWarp + i) * Span::kHeadDim + d * 32 + lane];
      merge(all, state[i]);
      state[i] = all;
    }
  }
};

template <int kDims>
__device__ __forceinline__ void write_result(const Softmax<kDims>& s,
                                             float* out,
                                             int head_dim,
                                             float scale) {
#pragma unroll
  for (int d = 0; d < kDims; ++d) {
    const int i = d * 32 + lane_id();
    if (i < head_dim) out[i] = s.acc[d] / s.sum * scale;
  }
}

// Whether this block is the last of `n` to come here; what the others wrote can then be read.
__device__ __forceinline__ bool comes_last(std::uint32_t* arrivals, std::int32_t n) {
  __shared__ bool last;
  publish();
  sync_block();
  if (threadIdx.x == 0) {
    last = arrive(arrivals) + 1 == static_cast<std::uint32_t>(n);
    if (last) *arrivals = 0;  // all have been here
  }
  sync_block();
  return last;
}

// All runs of a warp's queries, from the first to the last, some loaded ahead.
template <int kDims, class HeadOf>
__device__ __forceinline__ void merge_runs(const AttentionArgs& p,
                                           const std::int32_t (&position)[kPerWarp],
                                           std::int32_t n_runs,
                                           const HeadOf& head_of,
                                           Softmax<kDims> (&total)[kPerWarp]) {
  constexpr int kAhead = 2;
  const int lane = lane_id(), head_dim = p.geometry.head_dim;
  for (std::int32_t first = 0; first < n_runs; first += kAhead) {
    Softmax<kDims> part[kAhead][kPerWarp];
#pragma unroll
    for (int run = 0; run < kAhead; ++run)
#pragma unroll
      for (int i = 0; i < kPerWarp; ++i) {
        if (position[i] < fragment::run_begin(first + run)) continue;
        const float* in = p.partial + (head_of(warp_id() * kPerWarp + i) * p.n_runs + first + run) *
                                          (head_dim + 2);
        part[run][i].max = load_published(in);
        part[run][i].sum = load_published(in + 1);
#pragma unroll
        for (int d = 0; d < kDims; ++d)
          if (d * 32 + lane < head_dim)
            part[run][i].acc[d] = load_published(in + 2 + d * 32 + lane);
      }
#pragma unroll
    for (int run = 0; run < kAhead; ++run)
#pragma unroll
      for (int i = 0; i < kPerWarp; ++i)
        if (position[i] >= fragment::run_begin(first + run)) merge(total[i], part[run][i]);
  }
}

// Grid: tiles of queries, KV heads, runs (or 1). kMatrix: whole spans on the matrix unit.
template <DType kKv, int kDims, bool kMatrix>
__global__ void __launch_bounds__(kThreads) attention_kernel(AttentionArgs p) {
  wait_for_earlier_kernels();
  let_next_kernel_start();
  const KvGeometry& g = p.geometry;
  const int warp = warp_id(), lane = lane_id();
  const auto kv_head = static_cast<std::int32_t>(blockIdx.y);
  const std::int32_t group = p.n_heads / g.n_kv_heads;
  const Tile tile = find_tile(p, static_cast<std::int32_t>(blockIdx.x), group);
  if (tile.sequence < 0) return;
  float* q = reinterpret_cast<float*>(shared_memory());  // [kQueries][head_dim]
  using Span = std::conditional_t<kMatrix, NarrowSpan<kDims>, WideSpan>;
  const Span there = make_span<Span>(q + kQueries * g.head_dim, g.head_dim);
  const int n_queries = tile.n < kQueries ? tile.n : kQueries;
  // Packed query i of the tile: which (row, head), as an index of heads of all rows.
  const auto head_of = [&](int i) {
    const std::int32_t packed = tile.first + i;
    const std::int64_t row = p.row_begin[tile.sequence] + packed / group;
    return row * p.n_heads + kv_head * group + packed % group;
  };
  for (int i = static_cast<int>(threadIdx.x); i < kQueries * g.head_dim; i += kThreads) {
    const int query = i / g.head_dim, d = i % g.head_dim;
    q[i] = query < n_queries ? p.q[head_of(query) * g.head_dim + d] : 0.0f;
    if constexpr (kMatrix) split(q[i], there.q + query * Span::kPitch + d, kQueries * Span::kPitch);
  }
  std::int32_t position[kPerWarp];
  std::int32_t last = -1;
  [[maybe_unused]] __shared__ std::int32_t positions[kQueries];
  for (int i = 0; i < n_queries; ++i) {
    const std::int32_t at = p.positions[head_of(i) / p.n_heads];
    if (threadIdx.x == 0) positions[i] = at;
    last = at > last ? at : last;
  }
#pragma unroll
  for (int i = 0; i < kPerWarp; ++i) {
    const int mine = warp * kPerWarp + i;
    position[i] = mine < n_queries ? p.positions[head_of(mine) / p.n_heads] : -1;
  }
  const KvScales scales = scales_of<kKv>(p, kv_head);
  const float scale = kMatrix ? p.scale * scales.of_keys : p.scale;
  Softmax<kDims> total[kPerWarp];
  const bool split = p.partial != nullptr;
  const std::int32_t first_run = split ? static_cast<std::int32_t>(blockIdx.z) : 0;
  const std::int32_t end_run = split ? first_run + 1 : p.n_runs;
  if (fragment::run_begin(first_run) > last) return;  // only runs that exist arrive
  for (std::int32_t run = first_run; run < end_run; ++run) {
    const std::int32_t begin = fragment::run_begin(run), end = fragment::run_begin(run + 1);
    if (begin > last) break;
    Softmax<kDims> here[kPerWarp];
    std::conditional_t<kMatrix, WholeSpans<kDims>, int> whole_spans{};
    for (std::int32_t span = begin; span < end && span <= last; span += kSpan) {
      const std::int32_t left = last + 1 - span;
      sync_block();
      load_span<kKv>(p, tile.sequence, kv_head, span, left < kSpan ? left : kSpan, scales, there);
      sync_block();
      const auto is_whole = [&](std::int32_t at) { return at + 1 - span >= kSpan; };
      std::int32_t n_valid[kPerWarp];
#pragma unroll
      for (int i = 0; i < kPerWarp; ++i)
        n_valid[i] = !is_whole(position[i]) ? position[i] + 1 - span : kMatrix ? 0 : kSpan;
      if constexpr (kMatrix)
        if (is_whole(last))
          whole_spans.absorb(
              there, scale, [&](int i) { return is_whole(position[i]); },
              [&](int row) { return row < n_queries && is_whole(positions[row]); });
      absorb_span<kDims>(here, q + warp * kPerWarp * g.head_dim, there, n_valid, g.head_dim, scale);
    }
    if constexpr (kMatrix) whole_spans.finish(there, here);
#pragma unroll
    for (int i = 0; i < kPerWarp; ++i) {
      if (position[i] < begin) continue;
      if (!split) {
        merge(total[i], here[i]);
        continue;
      }
      float* out = p.partial + (head_of(warp * kPerWarp + i) * p.n_runs + run) * (g.head_dim + 2);
      if (lane == 0) out[0] = here[i].max;
      if (lane == 0) out[1] = here[i].sum;
#pragma unroll
      for (int d = 0; d < kDims; ++d)
        if (d * 32 + lane < g.head_dim) out[2 + d * 32 + lane] = here[i].acc[d];
    }
  }
  if (split) {
    const std::int32_t n_runs = fragment::runs_of(last + 1);
    if (!comes_last(p.arrivals + blockIdx.x * gridDim.y + blockIdx.y, n_runs)) return;
    merge_runs<kDims>(p, position, n_runs, head_of, total);
  }
#pragma unroll
  for (int i = 0; i < kPerWarp; ++i)
    if (position[i] >= 0)
      write_result(total[i], p.out + head_of(warp * kPerWarp + i) * g.head_dim, g.head_dim,
                   kMatrix ? scales.of_values : 1.0f);
}

template <DType kKv, int kDims>
void start(Launch l, const AttentionArgs& p) {
  const char* name = "attention";
  const int head_dim = p.geometry.head_dim;
  const std::size_t q_bytes = sizeof(float) * static_cast<std::size_t>(kQueries * head_dim);
  if constexpr ((kKv == DType::kBf16 || kKv == DType::kF8E4M3) && kDims <= 4) {
    if (head_dim == 32 * kDims && loads_whole(p, 16)) {
      l.shared_bytes = q_bytes + NarrowSpan<kDims>::kBytes;
      return launch(l, name, attention_kernel<kKv, kDims, true>, p);
    }
  }
  l.shared_bytes = q_bytes + sizeof(float) * static_cast<std::size_t>(2 * kSpan * (head_dim + 1));
  launch(l, name, attention_kernel<kKv, kDims, false>, p);
}

template <DType kKv>
void start(const Launch& l, const AttentionArgs& p) {
  if (p.geometry.head_dim <= 64)
    start<kKv, 2>(l, p);
  else if (p.geometry.head_dim <= 128)
    start<kKv, 4>(l, p);
  else
    start<kKv, 8>(l, p);
}

}  // namespace

// Every sequence may leave one tile unfilled.
static std::int64_t most_tiles(const AttnPagedArgs& args) {
  const std::int64_t group = args.n_heads / args.kv.geometry.n_kv_heads;
  return args.n_rows * group / kQueries + args.n_sequences;
}

AttentionPlan plan_attention(const AttnPagedArgs& args) {
  constexpr std::int64_t kMostFloats = std::int64_t{16} << 20;
  const KvGeometry& g = args.kv.geometry;
  const std::int64_t most = std::int64_t{args.max_blocks} * g.block_tokens;
  AttentionPlan plan;
  plan.n_runs = fragment::runs_of(static_cast<std::int32_t>(std::min<std::int64_t>(most, 1 << 30)));
  plan.n_floats = std::int64_t{args.n_rows} * args.n_heads * plan.n_runs * (g.head_dim + 2);
  plan.split = args.n_rows <= 64 && plan.n_floats <= kMostFloats;
  plan.n_tiles = most_tiles(args);
  return plan;
}

void attn_paged(const Launch& launch_in,
                const AttnPagedArgs& args,
                const AttentionPlan& plan,
                float* space,
                std::uint32_t* arrivals) {
  const KvGeometry& g = args.kv.geometry;
  if (g.head_dim > kMaxHeadDim)
    throw FatalError(ErrorCode::kUnsupportedModel,
                     "the CUDA backend has attention for heads of up to 256 dimensions, not " +
                         std::to_string(g.head_dim));
  const AttentionArgs p{args.q,           args.positions,
                        args.row_begin,   args.block_tables,
                        args.kv.blocks,   args.kv.scales,
                        args.out,         plan.split ? space : nullptr,
                        arrivals,         g,
                        args.n_sequences, args.max_blocks,
                        args.n_heads,     args.layer,
                        plan.n_runs,      args.scale};
  Launch l = launch_in;
  l.x = static_cast<unsigned>(plan.n_tiles);
  l.y = static_cast<unsigned>(g.n_kv_heads);
  l.z = plan.split ? static_cast<unsigned>(plan.n_runs) : 1;
  l.n_threads = kThreads;
  if (g.dtype == DType::kF32) start<DType::kF32>(l, p);
  if (g.dtype == DType::kBf16) start<DType::kBf16>(l, p);
  if (g.dtype == DType::kF16) start<DType::kF16>(l, p);
  if (g.dtype == DType::kF8E4M3) start<DType::kF8E4M3>(l, p);
}

}  // namespace foretoken::cuda
