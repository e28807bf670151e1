// Paged attention for any number of rows. Queries are (row, head of the group) packed, 16 to a
// block, so that the heads that share K and V read them once. Positions are cut into runs at fixed
// places (kernels/include/fragment.h); each run is its own softmax over spans of 32 positions, and
// runs are merged from the first to the last. With few rows the runs are blocks of their own and
// the last of a tile to finish merges them all; with many, one block walks all runs and merges as
// it goes. Same bits either way, and none depends on neighbours, batch or where blocks lie. f32
// arithmetic throughout.
//
// Launches overlap: q, new keys and values come from the kernel in front, so every thread waits
// before its first access to memory and reads nothing early. Counters of arrivals are zero between
// launches: who merges puts his back, so a recording can be replayed.
#include <algorithm>

#include "common/base/check.h"
#include "common/base/result.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.cuh"
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

// One span: lanes are positions for the scores, then dimensions for the values. n_valid > 0.
template <int kDims>
__device__ __forceinline__ void absorb_span(Softmax<kDims>& state,
                                            const float* q,
                                            const float* keys,
                                            const float* values,
                                            int n_valid,
                                            int head_dim,
                                            float scale) {
  const int lane = lane_id();
  float even = 0, odd = 0;
  const float* key = keys + lane * (head_dim + 1);
  for (int d = 0; d + 1 < head_dim; d += 2) {
    even = fma32(q[d], key[d], even);
    odd = fma32(q[d + 1], key[d + 1], odd);
  }
  if (head_dim % 2 != 0) even = fma32(q[head_dim - 1], key[head_dim - 1], even);
  const float score = lane < n_valid ? (even + odd) * scale : kNothing;
  float max = score;
  for (int step = 16; step > 0; step /= 2) max = fmaxf(max, shuffle_xor(max, step));
  max = fmaxf(max, state.max);  // passes over a NaN, which comes back through its weight
  const float before = expf(state.max - max);
  const float weight = lane < n_valid ? expf(score - max) : 0.0f;
  float sum = weight;
  for (int step = 16; step > 0; step /= 2) sum += shuffle_xor(sum, step);
  state.sum = state.sum * before + sum;
#pragma unroll
  for (int d = 0; d < kDims; ++d) state.acc[d] *= before;
  for (int j = 0; j < n_valid; ++j) {
    const float w = shuffle(weight, j);
#pragma unroll
    for (int d = 0; d < kDims; ++d) {
      const int i = d * 32 + lane;
      if (i < head_dim) state.acc[d] = fma32(w, values[j * head_dim + i], state.acc[d]);
    }
  }
  state.max = max;
}

// Keys [kSpan][head_dim + 1] and values [kSpan][head_dim] of positions begin .. begin + n.
template <DType kKv>
__device__ __forceinline__ void load_span(const AttentionArgs& p,
                                          std::int32_t sequence,
                                          std::int32_t kv_head,
                                          std::int32_t begin,
                                          int n,
                                          float* keys,
                                          float* values) {
  const KvGeometry& g = p.geometry;
  const std::int32_t* table = p.block_tables + std::int64_t{sequence} * p.max_blocks;
  float key_scale = 1.0f, value_scale = 1.0f;  // times one changes no bit
  if (kKv == DType::kF8E4M3 && p.scales != nullptr) {
    key_scale = p.scales[kv_scale_index(g, p.layer, false, kv_head)];
    value_scale = p.scales[kv_scale_index(g, p.layer, true, kv_head)];
  }
  for (int i = static_cast<int>(threadIdx.x); i < n * g.head_dim; i += kThreads) {
    const int j = i / g.head_dim, d = i % g.head_dim;
    const std::int32_t position = begin + j, block = table[position / g.block_tokens];
    const std::byte* key =
        p.blocks + kv_offset(g, block, position % g.block_tokens, p.layer, KvHalf::kKeys, kv_head);
    keys[j * (g.head_dim + 1) + d] = load_kv<kKv>(key, d) * key_scale;
    values[j * g.head_dim + d] = load_kv<kKv>(key + g.plane_bytes(), d) * value_scale;
  }
}

template <int kDims>
__device__ __forceinline__ void write_result(const Softmax<kDims>& s, float* out, int head_dim) {
#pragma unroll
  for (int d = 0; d < kDims; ++d) {
    const int i = d * 32 + lane_id();
    if (i < head_dim) out[i] = s.acc[d] / s.sum;
  }
}

// Whether this block is the last of `n` to come here; what the others wrote can then be read.
__device__ __forceinline__ bool comes_last(std::uint32_t* arrivals, std::int32_t n) {
  __shared__ bool last;
  publish();
  sync_block();
  if (threadIdx.x == 0) {
    last = arrive(arrivals) + 1 == static_cast<std::uint32_t>(n);
    if (last) *arrivals = 0;  // everybody has been here
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

// Grid: tiles of queries, KV heads, runs (or 1).
template <DType kKv, int kDims>
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
  float* keys = q + kQueries * g.head_dim;
  float* values = keys + kSpan * (g.head_dim + 1);
  const int n_queries = tile.n < kQueries ? tile.n : kQueries;
  // Packed query i of the tile: which (row, head), as an index of heads of all rows.
  const auto head_of = [&](int i) {
    const std::int32_t packed = tile.first + i;
    const std::int64_t row = p.row_begin[tile.sequence] + packed / group;
    return row * p.n_heads + kv_head * group + packed % group;
  };
  for (int i = static_cast<int>(threadIdx.x); i < n_queries * g.head_dim; i += kThreads)
    q[i] = p.q[head_of(i / g.head_dim) * g.head_dim + i % g.head_dim];
  std::int32_t position[kPerWarp];
  std::int32_t last = -1;
  for (int i = 0; i < n_queries; ++i) {
    const std::int32_t at = p.positions[head_of(i) / p.n_heads];
    last = at > last ? at : last;
  }
#pragma unroll
  for (int i = 0; i < kPerWarp; ++i) {
    const int mine = warp * kPerWarp + i;
    position[i] = mine < n_queries ? p.positions[head_of(mine) / p.n_heads] : -1;
  }
  Softmax<kDims> total[kPerWarp];
  const bool split = p.partial != nullptr;
  const std::int32_t first_run = split ? static_cast<std::int32_t>(blockIdx.z) : 0;
  const std::int32_t end_run = split ? first_run + 1 : p.n_runs;
  if (fragment::run_begin(first_run) > last) return;  // only runs that exist arrive
  for (std::int32_t run = first_run; run < end_run; ++run) {
    const std::int32_t begin = fragment::run_begin(run), end = fragment::run_begin(run + 1);
    if (begin > last) break;
    Softmax<kDims> here[kPerWarp];
    for (std::int32_t span = begin; span < end && span <= last; span += kSpan) {
      const std::int32_t left = last + 1 - span;
      sync_block();
      load_span<kKv>(p, tile.sequence, kv_head, span, left < kSpan ? left : kSpan, keys, values);
      sync_block();
#pragma unroll
      for (int i = 0; i < kPerWarp; ++i) {
        const std::int32_t n = position[i] + 1 - span;
        if (n > 0)
          absorb_span<kDims>(here[i], q + (warp * kPerWarp + i) * g.head_dim, keys, values,
                             n < kSpan ? n : kSpan, g.head_dim, p.scale);
      }
    }
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
      write_result(total[i], p.out + head_of(warp * kPerWarp + i) * g.head_dim, g.head_dim);
}

template <DType kKv>
void start(const Launch& l, const AttentionArgs& p) {
  const char* name = "attention";
  const int head_dim = p.geometry.head_dim;
  if (head_dim <= 64)
    launch(l, name, attention_kernel<kKv, 2>, p);
  else if (head_dim <= 128)
    launch(l, name, attention_kernel<kKv, 4>, p);
  else
    launch(l, name, attention_kernel<kKv, 8>, p);
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
  l.shared_bytes = sizeof(float) *
                   static_cast<std::size_t>(kQueries * g.head_dim + kSpan * (2 * g.head_dim + 1));
  if (g.dtype == DType::kF32) start<DType::kF32>(l, p);
  if (g.dtype == DType::kBf16) start<DType::kBf16>(l, p);
  if (g.dtype == DType::kF16) start<DType::kF16>(l, p);
  if (g.dtype == DType::kF8E4M3) start<DType::kF8E4M3>(l, p);
}

}  // namespace foretoken::cuda
