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

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kQueries = 16;  // of a block
constexpr int kPerWarp = kQueries / kWarps;
constexpr int kSpan = 32;  // positions: one a lane
constexpr int kSpans = 2;  // on the matrix unit at a time
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

// What the matrix unit works on, in shared memory, for kSpans spans: 16-bit operands, pitches that
// spread a fragment's rows over the banks, and what passes between the warps.
template <int kDims>
struct NarrowSpan {
  static constexpr int kHeadDim = 32 * kDims;
  static constexpr int kPitch = kHeadDim + 8;  // of a row of dimensions
  static constexpr int kAcross = kSpan + 8;    // of a row of positions
  static constexpr int kScores = kSpan + 1;
  static constexpr int kTerms = 3;
  static constexpr int kKeys = kSpan * kPitch;  // of a span
  static constexpr int kValues = kHeadDim * kAcross;
  static constexpr int kWeights = kTerms * kQueries * kAcross;
  static constexpr int kBytes =
      2 * (kTerms * kQueries * kPitch + kSpans * (kKeys + kValues + kWeights)) +
      4 * kSpans * (kQueries * kScores + kQueries);
  static_assert(2 * kSpans * kKeys >= 4 * kQueries * kHeadDim);
  std::uint16_t* keys;     // [kSpans][kSpan][kPitch]; at the end the sums, [kQueries][kHeadDim] f32
  std::uint16_t* values;   // [kSpans][kHeadDim][kAcross]
  std::uint16_t* q;        // [kTerms][kQueries][kPitch]
  std::uint16_t* weights;  // [kSpans][kTerms][kQueries][kAcross]
  float* scores;           // [kSpans][kQueries][kScores]
  float* factors;          // [kSpans][kQueries]: what sums so far are multiplied with
  __device__ __forceinline__ explicit NarrowSpan(std::byte* at)
      : keys(reinterpret_cast<std::uint16_t*>(at)),
        values(keys + kSpans * kKeys),
        q(values + kSpans * kValues),
        weights(q + kTerms * kQueries * kPitch),
        scores(reinterpret_cast<float*>(weights + kSpans * kWeights)),
        factors(scores + kSpans * kQueries * kScores) {}
  // Without their scales: these are in the scale of the scores and in the result.
  template <DType kKv>
  __device__ __forceinline__ void put(
      int span, int j, int d, const Words4& k, const Words4& v) const {
    constexpr int kEach = 16 / static_cast<int>(size_bytes(kKv));
    const auto pair = [](const Words4& words, int i) {
      if constexpr (kKv == DType::kBf16) return words.w[i];
      // A code is a bf16 exactly.
      return bits_as<std::uint32_t>(element<kKv>(words, 2 * i)) >> 16 |
             (bits_as<std::uint32_t>(element<kKv>(words, 2 * i + 1)) & 0xffff0000u);
    };
    std::uint16_t* across = values + span * kValues + d * kAcross + j;
    std::uint16_t* key = keys + span * kKeys + j * kPitch + d;
#pragma unroll
    for (int i = 0; i < kEach / 2; i += 4)
      store_words(key + 2 * i, {pair(k, i), pair(k, i + 1), pair(k, i + 2), pair(k, i + 3)});
#pragma unroll
    for (int i = 0; i < kEach / 2; ++i) {
      const std::uint32_t value = pair(v, i);
      across[2 * i * kAcross] = static_cast<std::uint16_t>(value);
      across[(2 * i + 1) * kAcross] = static_cast<std::uint16_t>(value >> 16);
    }
  }
};

// A thread's part of its span on its way from the cache: of one position, 16 bytes at a time. Two
// lanes take 32 bytes of a position, the next two those of the next, so that stores to shared
// memory meet no bank more than twice.
template <DType kKv, int kDims>
struct Fetched {
  static constexpr int kBytes = static_cast<int>(size_bytes(kKv));
  static constexpr int kEach = 16 / kBytes;
  static constexpr int kLoaders = kThreads / kSpans;      // threads of a span
  static constexpr int kStep = kLoaders / kSpan * kEach;  // dimensions between two loads
  static constexpr int kLoads = 32 * kDims / kStep;
  Words4 keys[kLoads];
  Words4 values[kLoads];
  static __device__ __forceinline__ int span() { return static_cast<int>(threadIdx.x) / kLoaders; }
  static __device__ __forceinline__ int position() {
    return static_cast<int>(threadIdx.x) / 2 % kSpan;
  }
  static __device__ __forceinline__ int dimension() {
    const int i = static_cast<int>(threadIdx.x) % kLoaders;
    return (i / (2 * kSpan) * 2 + i % 2) * kEach;
  }
  // key: of this thread's position.
  __device__ __forceinline__ void load(const std::byte* key, std::int64_t to_values) {
    const std::byte* at = key + dimension() * kBytes;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      keys[i] = load_words(at + i * kStep * kBytes);
      values[i] = load_words(at + to_values + i * kStep * kBytes);
    }
  }
  __device__ __forceinline__ void put(const NarrowSpan<kDims>& there) const {
#pragma unroll
    for (int i = 0; i < kLoads; ++i)
      there.template put<kKv>(span(), position(), dimension() + i * kStep, keys[i], values[i]);
  }
};

template <class Span>
__device__ __forceinline__ Span make_span(float* at, int head_dim) {
  if constexpr (std::is_same_v<Span, WideSpan>)
    return {at, at + kSpan * (head_dim + 1), head_dim + 1};
  else
    return Span(reinterpret_cast<std::byte*>(at));
}

// A pair as sums of three bf16 each: exactly, but for what lies below the smallest.
__device__ __forceinline__ void split(float low, float high, std::uint32_t (&terms)[3]) {
#pragma unroll
  for (int term = 0; term < 3; ++term) {
    terms[term] = round_pair(low, high, true);
    low = low - bits_as<float>(terms[term] << 16);
    high = high - bits_as<float>(terms[term] & 0xffff0000u);
  }
}

// One span for the queries of a warp: lanes are positions for the scores, then dimensions for the
// values; what is read of the span is read once for all. Query i has the first n_valid[i] positions
// of the span, or none. q: of the warp's first query.
template <int kDims>
__device__ __forceinline__ void absorb_span(Softmax<kDims> (&state)[kPerWarp],
                                            const float* q,
                                            const WideSpan& span,
                                            const std::int32_t (&n_valid)[kPerWarp],
                                            int head_dim,
                                            float scale) {
  bool any = false;
#pragma unroll
  for (int i = 0; i < kPerWarp; ++i) any = any || n_valid[i] > 0;
  if (!any) return;
  const int lane = lane_id(), apart = kWarps * head_dim;
  float even[kPerWarp] = {}, odd[kPerWarp] = {};
  for (int d = 0; d + 1 < head_dim; d += 2) {
    const float first = span.key(lane, d), second = span.key(lane, d + 1);
#pragma unroll
    for (int i = 0; i < kPerWarp; ++i) {
      even[i] = fma32(q[i * apart + d], first, even[i]);
      odd[i] = fma32(q[i * apart + d + 1], second, odd[i]);
    }
  }
  if (head_dim % 2 != 0)
#pragma unroll
    for (int i = 0; i < kPerWarp; ++i)
      even[i] = fma32(q[i * apart + head_dim - 1], span.key(lane, head_dim - 1), even[i]);
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

// The same for 16-bit keys and values that lie in span `at`, 16 bytes of them at a time.
template <int kDims, int kMine>
__device__ __forceinline__ void absorb_part(Softmax<kDims> (&state)[kMine],
                                            const float* q,
                                            const NarrowSpan<kDims>& span,
                                            int at,
                                            const std::int32_t (&n_valid)[kMine],
                                            float scale) {
  using Span = NarrowSpan<kDims>;
  constexpr int kEach = 8, kApart = kWarps * Span::kHeadDim;
  std::int32_t most = 0;
#pragma unroll
  for (int i = 0; i < kMine; ++i) most = n_valid[i] > most ? n_valid[i] : most;
  if (most <= 0) return;
  const int lane = lane_id();
  const auto low = [](std::uint32_t pair) { return bits_as<float>(pair << 16); };
  const auto high = [](std::uint32_t pair) { return bits_as<float>(pair & 0xffff0000u); };
  float even[kMine] = {}, odd[kMine] = {};
  const std::uint16_t* key = span.keys + at * Span::kKeys + lane * Span::kPitch;
#pragma unroll 1
  for (int d = 0; d < Span::kHeadDim; d += kEach) {
    const Words4 keys = load_words(key + d);
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
      const Words4 first = load_words(q + i * kApart + d),
                   second = load_words(q + i * kApart + d + 4);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const Words4& four = j < 2 ? first : second;
        even[i] = fma32(bits_as<float>(four.w[j % 2 * 2]), low(keys.w[j]), even[i]);
        odd[i] = fma32(bits_as<float>(four.w[j % 2 * 2 + 1]), high(keys.w[j]), odd[i]);
      }
    }
  }
  float weight[kMine];
#pragma unroll
  for (int i = 0; i < kMine; ++i) {
    const bool any = n_valid[i] > 0;
    const float score = lane < n_valid[i] ? (even[i] + odd[i]) * scale : kNothing;
    float max = score;
    for (int step = 16; step > 0; step /= 2) max = fmaxf(max, shuffle_xor(max, step));
    max = fmaxf(max, state[i].max);  // passes over a NaN, which comes back through its weight
    const float before = expf(state[i].max - max);
    weight[i] = lane < n_valid[i] ? expf(score - max) : 0.0f;
    const float sum = state[i].sum * before + warp_sum(weight[i]);
    state[i].sum = any ? sum : state[i].sum;
#pragma unroll
    for (int d = 0; d < kDims; ++d)
      state[i].acc[d] = any ? state[i].acc[d] * before : state[i].acc[d];
    state[i].max = any ? max : state[i].max;
  }
  const std::uint16_t* across = span.values + at * Span::kValues + lane * Span::kAcross;
#pragma unroll 2
  for (int j = 0; j < most; j += 2) {
    std::uint32_t pair[kDims];
#pragma unroll
    for (int d = 0; d < kDims; ++d)
      pair[d] = *reinterpret_cast<const std::uint32_t*>(across + d * 32 * Span::kAcross + j);
#pragma unroll
    for (int k = 0; k < 2; ++k)
#pragma unroll
      for (int i = 0; i < kMine; ++i) {
        const float w = shuffle(weight[i], j + k);
        const bool valid = j + k < n_valid[i];  // not even a weight of zero: the value may be NaN
#pragma unroll
        for (int d = 0; d < kDims; ++d) {
          const float sum = fma32(w, k == 0 ? low(pair[d]) : high(pair[d]), state[i].acc[d]);
          state[i].acc[d] = valid ? sum : state[i].acc[d];
        }
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

// The key of a position in the cache; its value lies plane_bytes() behind it.
__device__ __forceinline__ const std::byte* key_at(const AttentionArgs& p,
                                                   std::int32_t sequence,
                                                   std::int32_t kv_head,
                                                   std::int32_t position) {
  const KvGeometry& g = p.geometry;
  const std::int32_t* table = p.block_tables + std::int64_t{sequence} * p.max_blocks;
  return p.blocks + kv_offset(g, table[position / g.block_tokens], position % g.block_tokens,
                              p.layer, KvHalf::kKeys, kv_head);
}

// Keys and values of positions begin .. begin + n into `span`, 16 bytes a load where heads allow.
template <DType kKv>
__device__ __forceinline__ void load_span(const AttentionArgs& p,
                                          std::int32_t sequence,
                                          std::int32_t kv_head,
                                          std::int32_t begin,
                                          int n,
                                          const KvScales& scales,
                                          const WideSpan& span) {
  const KvGeometry& g = p.geometry;
  constexpr int kBytes = static_cast<int>(size_bytes(kKv)), kEach = 16 / kBytes;
  if (!loads_whole(p, kEach)) {
    for (int i = static_cast<int>(threadIdx.x); i < n * g.head_dim; i += kThreads) {
      const int j = i / g.head_dim, d = i % g.head_dim;
      const std::byte* key = key_at(p, sequence, kv_head, begin + j);
      span.keys[j * span.pitch + d] = load_kv<kKv>(key, d) * scales.of_keys;
      span.values[j * span.pitch + d] = load_kv<kKv>(key + g.plane_bytes(), d) * scales.of_values;
    }
    return;
  }
  for (int i = static_cast<int>(threadIdx.x);; i += kThreads) {
    const int j = i / 2 % kSpan, d = (i / (2 * kSpan) * 2 + i % 2) * kEach;
    if (i / (2 * kSpan) * 2 * kEach >= g.head_dim) break;
    if (j >= n || d >= g.head_dim) continue;
    const std::byte* key = key_at(p, sequence, kv_head, begin + j) + d * kBytes;
    span.template put<kKv>(j, d, load_words(key), load_words(key + g.plane_bytes()), scales.of_keys,
                           scales.of_values);
  }
}

// Spans that a query has whole, on the matrix unit: all 16 queries of the block at once, q and
// weights as three bf16 each, so nothing is lost beside bf16 keys and values. A row of a product
// never sees another, and whether a span is whole depends on the query's position alone; the last
// span of a query, if it is not whole, is absorb_span's.
template <int kDims, int kMine>
struct WholeSpans {
  using Span = NarrowSpan<kDims>;
  static constexpr int kParts = kWarps / kSpans;     // of a span's scores, a warp each
  static constexpr int kTiles = 4 * kDims / kWarps;  // of 8 dimensions, of a warp
  float max[kMine];                                  // of this warp's own queries
  float sum[kMine];
  float acc[kTiles][4];  // of all queries, the warp's dimensions, as C fragments

  __device__ __forceinline__ WholeSpans() {
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
      max[i] = kNothing;
      sum[i] = 0;
    }
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
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

  // The first n of the spans in `span`, which begin at position `begin`, by all warps. position: of
  // the warp's queries; first, second: of the queries in a lane's C fragments.
  __device__ __forceinline__ void absorb(const Span& span,
                                         int n,
                                         std::int32_t begin,
                                         float scale,
                                         const std::int32_t (&position)[kMine],
                                         std::int32_t first,
                                         std::int32_t second) {
    const int warp = warp_id(), lane = lane_id();
    // Of every span, also one that is not there: its scores are not read.
    const int mine = warp / kParts, part = warp % kParts;
    float c[4] = {};
#pragma unroll 2
    for (int k = 0; k < Span::kHeadDim; k += fragment::kStepK) {
      std::uint32_t b[2];
      load_b(span.keys + mine * Span::kKeys + 8 * part * Span::kPitch, Span::kPitch, k, b);
#pragma unroll
      for (int term = Span::kTerms - 1; term >= 0; --term) {
        std::uint32_t a[4];
        load_a(span.q + term * kQueries * Span::kPitch, Span::kPitch, k, a);
        mma_bf16(c, a, b[0], b[1]);
      }
    }
#pragma unroll
    for (int i = 0; i < fragment::kCValues; ++i)
      span.scores[(mine * kQueries + fragment::c_row(lane, i)) * Span::kScores + 8 * part +
                  fragment::c_token(lane, i)] = c[i];
    sync_block();
    for (int s = 0; s < n; ++s) weigh(span, s, begin + s * kSpan, scale, position);
    sync_block();
    for (int s = 0; s < n; ++s) {
      const auto is_whole = [&](std::int32_t at) { return at + 1 - begin >= (s + 1) * kSpan; };
      add_values(span, s, is_whole(first), is_whole(second));
    }
  }

  // Weights of span s from its scores; the warp's queries beside one another. What becomes of one
  // that has no such span whole is not read.
  __device__ __forceinline__ void weigh(const Span& span,
                                        int s,
                                        std::int32_t begin,
                                        float scale,
                                        const std::int32_t (&position)[kMine]) {
    const int lane = lane_id();
    float score[kMine], highest[kMine], weight[kMine], total[kMine], before[kMine];
#pragma unroll
    for (int i = 0; i < kMine; ++i)
      highest[i] = score[i] =
          span.scores[(s * kQueries + i * kWarps + warp_id()) * Span::kScores + lane] * scale;
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
#pragma unroll
      for (int i = 0; i < kMine; ++i) highest[i] = fmaxf(highest[i], shuffle_xor(highest[i], step));
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
      highest[i] = fmaxf(highest[i], max[i]);  // passes over a NaN, which its weight brings back
      before[i] = expf(max[i] - highest[i]);
      total[i] = weight[i] = expf(score[i] - highest[i]);
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
#pragma unroll
      for (int i = 0; i < kMine; ++i) total[i] += shuffle_xor(total[i], step);
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
      const bool whole = position[i] + 1 - begin >= kSpan;
      const int row = i * kWarps + warp_id();
      const float all = sum[i] * before[i] + total[i];
      sum[i] = whole ? all : sum[i];
      max[i] = whole ? highest[i] : max[i];
      std::uint32_t terms[3];
      split(weight[i], 0.0f, terms);
#pragma unroll
      for (int term = 0; term < Span::kTerms; ++term)
        span.weights[s * Span::kWeights + (term * kQueries + row) * Span::kAcross + lane] =
            static_cast<std::uint16_t>(terms[term]);
      if (lane == 0) span.factors[s * kQueries + row] = before[i];
    }
  }

  // Values of span s; whether a lane's queries have it.
  __device__ __forceinline__ void add_values(const Span& span, int s, bool first, bool second) {
    const int warp = warp_id(), lane = lane_id();
    float next[kTiles][4];
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        next[tile][i] = acc[tile][i] * span.factors[s * kQueries + fragment::c_row(lane, i)];
#pragma unroll
    for (int k = 0; k < kSpan; k += fragment::kStepK) {
      std::uint32_t b[kTiles][2];
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile)
        load_b(span.values + s * Span::kValues + 8 * (warp * kTiles + tile) * Span::kAcross,
               Span::kAcross, k, b[tile]);
#pragma unroll
      for (int term = Span::kTerms - 1; term >= 0; --term) {
        std::uint32_t a[4];
        load_a(span.weights + s * Span::kWeights + term * kQueries * Span::kAcross, Span::kAcross,
               k, a);
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) mma_bf16(next[tile], a, b[tile][0], b[tile][1]);
      }
    }
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        acc[tile][i] = (i < 2 ? first : second) ? next[tile][i] : acc[tile][i];
  }

  // At the end of a run, by all warps: state = the whole spans followed by what `state` has.
  __device__ __forceinline__ void finish(const Span& span, Softmax<kDims> (&state)[kMine]) const {
    const int warp = warp_id(), lane = lane_id();
    float* sums = reinterpret_cast<float*>(span.keys);
    sync_block();
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        sums[fragment::c_row(lane, i) * Span::kHeadDim + 8 * (warp * kTiles + tile) +
             fragment::c_token(lane, i)] = acc[tile][i];
    sync_block();
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
      if (sum[i] == 0) continue;  // the query has no whole span here
      Softmax<kDims> all;
      all.max = max[i];
      all.sum = sum[i];
#pragma unroll
      for (int d = 0; d < kDims; ++d)
        all.acc[d] = sums[(i * kWarps + warp) * Span::kHeadDim + d * 32 + lane];
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

// All runs of a warp's queries, from the first to the last: what merge() does, with the factors of
// 32 runs taken first, a run a lane, and the sums of some runs loaded ahead.
template <int kDims, int kMine, class HeadOf>
__device__ __forceinline__ void merge_runs(const AttentionArgs& p,
                                           const std::int32_t (&position)[kMine],
                                           std::int32_t n_runs,
                                           const HeadOf& head_of,
                                           Softmax<kDims> (&total)[kMine]) {
  constexpr int kAhead = kMine == 1 ? 8 : kDims == 4 ? 2 : 4;
  const int lane = lane_id(), head_dim = p.geometry.head_dim;
  const float* partial[kMine];  // of the query's first run
  std::int32_t n[kMine];        // runs that it has
#pragma unroll
  for (int i = 0; i < kMine; ++i) {
    n[i] = position[i] < 0 ? 0 : fragment::runs_of(position[i] + 1);
    partial[i] =
        p.partial + (n[i] > 0 ? head_of(i * kWarps + warp_id()) * p.n_runs : 0) * (head_dim + 2);
  }
  for (std::int32_t first = 0; first < n_runs; first += 32) {
    float before[kMine], after[kMine], sums[kMine];
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
      const bool exists = first + lane < n[i];
      const float* in = partial[i] + (exists ? first + lane : 0) * (head_dim + 2);
      const float mine = exists ? load_published(in) : kNothing;
      sums[i] = exists ? load_published(in + 1) : 0.0f;
      float max = mine;  // of this run and those before
      for (int step = 1; step < 32; step *= 2)
        max = fmaxf(max, shuffle(max, lane < step ? lane : lane - step));
      max = fmaxf(max, total[i].max);
      const float left = shuffle(max, lane == 0 ? 0 : lane - 1);
      before[i] = expf((lane == 0 ? total[i].max : left) - max);
      after[i] = expf(mine - max);
      total[i].max = shuffle(max, 31);
    }
#pragma unroll 1
    for (int some = 0; some < 32 && first + some < n_runs; some += kAhead) {
      float acc[kAhead][kMine][kDims];
#pragma unroll
      for (int run = 0; run < kAhead; ++run)
#pragma unroll
        for (int i = 0; i < kMine; ++i) {
          const std::int32_t at = first + some + run;
          const float* in = partial[i] + (at < n[i] ? at : 0) * (head_dim + 2) + 2 + lane;
#pragma unroll
          for (int d = 0; d < kDims; ++d)
            acc[run][i][d] = d * 32 + lane < head_dim ? load_published(in + d * 32) : 0.0f;
        }
#pragma unroll
      for (int run = 0; run < kAhead; ++run)
#pragma unroll
        for (int i = 0; i < kMine; ++i) {
          const float b = shuffle(before[i], some + run), a = shuffle(after[i], some + run);
          const float sum = total[i].sum * b + shuffle(sums[i], some + run) * a;
          const bool exists = first + some + run < n[i];
          total[i].sum = exists ? sum : total[i].sum;
#pragma unroll
          for (int d = 0; d < kDims; ++d) {
            const float x = total[i].acc[d] * b + acc[run][i][d] * a;
            total[i].acc[d] = exists ? x : total[i].acc[d];
          }
        }
    }
  }
}

// A run on the CUDA cores, span by span.
template <DType kKv, int kDims, int kMine>
__device__ __forceinline__ void attend_wide(const AttentionArgs& p,
                                            const Tile& tile,
                                            std::int32_t begin,
                                            std::int32_t end,
                                            std::int32_t last,
                                            const std::int32_t (&position)[kMine],
                                            const KvScales& scales,
                                            const float* q,
                                            const WideSpan& there,
                                            Softmax<kDims> (&here)[kMine]) {
  const int head_dim = p.geometry.head_dim;
  for (std::int32_t span = begin; span < end && span <= last; span += kSpan) {
    const std::int32_t left = last + 1 - span;
    sync_block();
    load_span<kKv>(p, tile.sequence, static_cast<std::int32_t>(blockIdx.y), span,
                   left < kSpan ? left : kSpan, scales, there);
    sync_block();
    std::int32_t n_valid[kMine];
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
      const std::int32_t n = position[i] + 1 - span;
      n_valid[i] = n < kSpan ? n : kSpan;
    }
    absorb_span<kDims>(here, q + warp_id() * head_dim, there, n_valid, head_dim, p.scale);
  }
}

// A run, whole spans on the matrix unit, kSpans at a time.
template <DType kKv, int kDims, int kMine>
__device__ __forceinline__ void attend_narrow(const AttentionArgs& p,
                                              const Tile& tile,
                                              std::int32_t begin,
                                              std::int32_t end,
                                              std::int32_t last,
                                              std::int32_t positions,
                                              const std::int32_t (&position)[kMine],
                                              float scale,
                                              const float* q,
                                              const NarrowSpan<kDims>& there,
                                              Softmax<kDims> (&here)[kMine]) {
  using F = Fetched<kKv, kDims>;
  const int lane = lane_id();
  const auto kv_head = static_cast<std::int32_t>(blockIdx.y);
  const std::int64_t to_values = p.geometry.plane_bytes();
  const std::int32_t first = shuffle(positions, fragment::c_row(lane, 0)),
                     second = shuffle(positions, fragment::c_row(lane, 2));
  const auto is_there = [&](std::int32_t at) { return at < end && at <= last; };
  // The rest of the run on its way, while the first spans are worked on.
  for (std::int32_t at = begin + (kSpans + F::span()) * kSpan + F::position(); is_there(at);
       at += kSpans * kSpan) {
    const std::byte* key = key_at(p, tile.sequence, kv_head, at) + F::dimension() * F::kBytes;
#pragma unroll
    for (int i = 0; i < F::kLoads; ++i) {
      prefetch_line(key + i * F::kStep * F::kBytes);
      prefetch_line(key + to_values + i * F::kStep * F::kBytes);
    }
  }
  WholeSpans<kDims, kMine> whole_spans;
#pragma unroll 1
  for (std::int32_t span = begin; is_there(span); span += kSpans * kSpan) {
    F fetched;
    const std::int32_t at = span + F::span() * kSpan + F::position();
    if (is_there(at)) fetched.load(key_at(p, tile.sequence, kv_head, at), to_values);
    sync_block();
    if (is_there(at)) fetched.put(there);
    sync_block();
    const std::int32_t n_whole = (last + 1 - span) / kSpan;
    if (n_whole > 0)
      whole_spans.absorb(there, n_whole < kSpans ? n_whole : kSpans, span, scale, position, first,
                         second);
#pragma unroll 1
    for (int s = 0; s < kSpans; ++s) {
      std::int32_t n_valid[kMine];
#pragma unroll
      for (int i = 0; i < kMine; ++i) {
        const std::int32_t n = position[i] + 1 - span - s * kSpan;
        n_valid[i] = n < kSpan ? n : 0;
      }
      absorb_part<kDims>(here, q + warp_id() * 32 * kDims, there, s, n_valid, scale);
    }
  }
  if (last + 1 - begin >= kSpan) whole_spans.finish(there, here);
}

// Grid: tiles of queries, KV heads, runs (or 1). kMatrix: whole spans on the matrix unit. kMine:
// queries of a warp, dealt by turns.
template <DType kKv, int kDims, bool kMatrix, int kMine>
__global__ void __launch_bounds__(kThreads, kDims == 8 ? 1 : 2) attention_kernel(AttentionArgs p) {
  wait_for_earlier_kernels();
  let_next_kernel_start();
  const KvGeometry& g = p.geometry;
  const int warp = warp_id(), lane = lane_id();
  const std::int32_t group = p.n_heads / g.n_kv_heads;
  const Tile tile = find_tile(p, static_cast<std::int32_t>(blockIdx.x), group);
  if (tile.sequence < 0) return;
  float* q = reinterpret_cast<float*>(shared_memory());  // [kQueries][head_dim]
  using Span = std::conditional_t<kMatrix, NarrowSpan<kDims>, WideSpan>;
  const Span there = make_span<Span>(q + kQueries * g.head_dim, g.head_dim);
  const int n_queries = tile.n < kQueries ? tile.n : kQueries;
  const std::int32_t first_row = p.row_begin[tile.sequence];
  // Packed query i of the tile: its row, and which (row, head), as an index of heads of all rows.
  const auto row_of = [&](int i) { return first_row + (tile.first + i) / group; };
  const auto head_of = [&](int i) {
    return std::int64_t{row_of(i)} * p.n_heads + static_cast<std::int32_t>(blockIdx.y) * group +
           (tile.first + i) % group;
  };
  // A query a lane; then of the warp's own queries.
  const std::int32_t positions = lane < n_queries ? p.positions[row_of(lane)] : -1;
  std::int32_t last = positions;
  for (int step = 16; step > 0; step /= 2) {
    const std::int32_t other = shuffle_xor(last, step);
    last = other > last ? other : last;
  }
  std::int32_t position[kMine];
#pragma unroll
  for (int i = 0; i < kMine; ++i) position[i] = shuffle(positions, i * kWarps + warp);
  const bool split_runs = p.partial != nullptr;
  const std::int32_t first_run = split_runs ? static_cast<std::int32_t>(blockIdx.z) : 0;
  const std::int32_t end_run = split_runs ? first_run + 1 : p.n_runs;
  if (fragment::run_begin(first_run) > last) return;  // only runs that exist arrive
  if constexpr (kMatrix) {
    constexpr int kFours = 8 * kDims, kRounds = kQueries * kFours / kThreads;  // of a query
    Words4 four[kRounds];
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      const int i = static_cast<int>(threadIdx.x) + round * kThreads, query = i / kFours;
      four[round] = {};
      if (query < n_queries)
        four[round] = load_words(p.q + head_of(query) * g.head_dim + i % kFours * 4);
    }
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      const int i = static_cast<int>(threadIdx.x) + round * kThreads;
      const int query = i / kFours, d = i % kFours * 4;
      std::uint32_t first[3], second[3];
      split(bits_as<float>(four[round].w[0]), bits_as<float>(four[round].w[1]), first);
      split(bits_as<float>(four[round].w[2]), bits_as<float>(four[round].w[3]), second);
      store_words(q + query * 32 * kDims + d, four[round]);
#pragma unroll
      for (int term = 0; term < Span::kTerms; ++term) {
        auto* to = reinterpret_cast<std::uint32_t*>(there.q +
                                                    (term * kQueries + query) * Span::kPitch + d);
        to[0] = first[term];
        to[1] = second[term];
      }
    }
  } else {
    for (int i = static_cast<int>(threadIdx.x); i < kQueries * g.head_dim; i += kThreads) {
      const int query = i / g.head_dim, d = i % g.head_dim;
      q[i] = query < n_queries ? p.q[head_of(query) * g.head_dim + d] : 0.0f;
    }
  }
  const KvScales scales = scales_of<kKv>(p, static_cast<std::int32_t>(blockIdx.y));
  Softmax<kDims> total[kMine];
  for (std::int32_t run = first_run; run < end_run; ++run) {
    const std::int32_t begin = fragment::run_begin(run), end = fragment::run_begin(run + 1);
    if (begin > last) break;
    Softmax<kDims> here[kMine];
    if constexpr (kMatrix)
      attend_narrow<kKv>(p, tile, begin, end, last, positions, position, p.scale * scales.of_keys,
                         q, there, here);
    else
      attend_wide<kKv>(p, tile, begin, end, last, position, scales, q, there, here);
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
      if (position[i] < begin) continue;
      if (!split_runs) {
        merge(total[i], here[i]);
        continue;
      }
      float* out = p.partial + (head_of(i * kWarps + warp) * p.n_runs + run) * (g.head_dim + 2);
      if (lane == 0) out[0] = here[i].max;
      if (lane == 0) out[1] = here[i].sum;
#pragma unroll
      for (int d = 0; d < kDims; ++d)
        if (d * 32 + lane < g.head_dim) out[2 + d * 32 + lane] = here[i].acc[d];
    }
  }
  if (split_runs) {
    const std::int32_t n_runs = fragment::runs_of(last + 1);
    if (!comes_last(p.arrivals + blockIdx.x * gridDim.y + blockIdx.y, n_runs)) return;
    merge_runs<kDims>(p, position, n_runs, head_of, total);
  }
#pragma unroll
  for (int i = 0; i < kMine; ++i)
    if (position[i] >= 0)
      write_result(total[i], p.out + head_of(i * kWarps + warp) * g.head_dim, g.head_dim,
                   kMatrix ? scales.of_values : 1.0f);
}

// most_queries: of a tile.
template <DType kKv, int kDims>
void start(Launch l, const AttentionArgs& p, std::int64_t most_queries) {
  const char* name = "attention";
  const int head_dim = p.geometry.head_dim;
  const std::size_t q_bytes = sizeof(float) * static_cast<std::size_t>(kQueries * head_dim);
  if constexpr ((kKv == DType::kBf16 || kKv == DType::kF8E4M3) && kDims <= 4) {
    const bool aligned = reinterpret_cast<std::uintptr_t>(p.q) % 16 == 0;
    if (head_dim == 32 * kDims && loads_whole(p, 16) && aligned) {
      l.shared_bytes = q_bytes + NarrowSpan<kDims>::kBytes;
      if (most_queries <= kWarps) return launch(l, name, attention_kernel<kKv, kDims, true, 1>, p);
      return launch(l, name, attention_kernel<kKv, kDims, true, kPerWarp>, p);
    }
  }
  l.shared_bytes = q_bytes + sizeof(float) * static_cast<std::size_t>(2 * kSpan * (head_dim + 1));
  launch(l, name, attention_kernel<kKv, kDims, false, kPerWarp>, p);
}

template <DType kKv>
void start(const Launch& l, const AttentionArgs& p, std::int64_t most_queries) {
  if (p.geometry.head_dim <= 64)
    start<kKv, 2>(l, p, most_queries);
  else if (p.geometry.head_dim <= 128)
    start<kKv, 4>(l, p, most_queries);
  else
    start<kKv, 8>(l, p, most_queries);
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
  const std::int64_t most_queries = std::int64_t{args.n_rows} * (args.n_heads / g.n_kv_heads);
  if (g.dtype == DType::kF32) start<DType::kF32>(l, p, most_queries);
  if (g.dtype == DType::kBf16) start<DType::kBf16>(l, p, most_queries);
  if (g.dtype == DType::kF16) start<DType::kF16>(l, p, most_queries);
  if (g.dtype == DType::kF8E4M3) start<DType::kF8E4M3>(l, p, most_queries);
}

}  // namespace foretoken::cuda
