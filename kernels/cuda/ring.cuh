// What the products with a ring of weights share: who does what in a block, where sums meet, and
// how the blocks of a cluster add their parts of K and finish.
#pragma once

#include "kernels/cuda/product.cuh"

namespace foretoken::cuda {

inline constexpr int kRingConsumers = 8;                        // warps, one for each row tile
inline constexpr int kRingThreads = 32 * (kRingConsumers + 1);  // and one that copies
inline constexpr int kRingSharedBytes = 100 << 10;  // two blocks fit on a multiprocessor
inline constexpr int kTilePitch =
    fragment::kBlockRows + 4;  // floats; lanes of a store meet no bank twice

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
// tile: [token][kTilePitch] of the block's rows.
template <int kGroups>
__device__ __forceinline__ void store_tile(const float (&acc)[kGroups][4], float* tile) {
  const int warp = warp_id(), lane = lane_id();
#pragma unroll
  for (int group = 0; group < kGroups; ++group)
#pragma unroll
    for (int i = 0; i < fragment::kCValues; ++i)
      tile[(group * 8 + fragment::c_token(lane, i)) * kTilePitch + warp * fragment::kTileRows +
           fragment::c_row(lane, i)] = acc[group][i];
}

// Each block of the cluster finishes its share of the rows: sums in order of parts, then `f`.
template <Finish kFinish>
__device__ __forceinline__ void finish_tile(const MatmulArgs& p,
                                            const FinishArgs& f,
                                            const float* tile) {
  constexpr int kPerPair = kFinish == Finish::kSwiglu ? 2 : 1;
  const int rank = p.n_parts > 1 ? cluster_rank() : 0;
  const int n_columns =
      fragment::kBlockRows / kPerPair / p.n_parts;  // of this block of the cluster
  const int first =
      static_cast<int>(blockIdx.x) * (fragment::kBlockRows / kPerPair) + rank * n_columns;
  const std::int64_t first_row = static_cast<std::int64_t>(blockIdx.x) * fragment::kBlockRows;
  for (int i = static_cast<int>(threadIdx.x); i < n_columns * f.n_tokens; i += kRingThreads) {
    const int token = i / n_columns, column = first + i % n_columns;
    if (column >= f.n_columns) continue;
    write_column<kFinish>(token, column, f, [&](std::int64_t row) {
      const float* at = tile + token * kTilePitch + (row - first_row);
      if (p.n_parts == 1) return *at;
      float sum = load_from_rank(at, 0);
      for (int part = 1; part < p.n_parts; ++part) sum += load_from_rank(at, part);
      return sum;
    });
  }
}

// All threads, once every tile is stored.
template <Finish kFinish>
__device__ __forceinline__ void finish_cluster(const MatmulArgs& p,
                                               const FinishArgs& f,
                                               const float* tile) {
  wait_for_earlier_kernels();  // for every thread that reads or writes what kernels write
  if (p.n_parts > 1)
    sync_cluster();
  else
    sync_block();
  finish_tile<kFinish>(p, f, tile);
  if (p.n_parts > 1) sync_cluster();  // nobody leaves while his sums are read
}
#endif

}  // namespace foretoken::cuda
