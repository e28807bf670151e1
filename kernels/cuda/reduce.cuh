// Sums and maxima over a block in one fixed order: lanes by halving, then warps from the first to
// the last. The order depends on the size of the block alone.
#pragma once

#include "kernels/cuda/device.cuh"

namespace foretoken::cuda {

// Of a warp, lanes by halving. Every lane gets the sum.
template <class T>
__device__ __forceinline__ T warp_sum(T x) {
  for (int step = 16; step > 0; step /= 2) x += shuffle_xor(x, step);
  return x;
}

// `room`: one T a warp, in shared memory. Every thread gets the sum.
template <class T>
__device__ __forceinline__ T block_sum(T x, T* room, int n_warps) {
  x = warp_sum(x);
  sync_block();  // threads that still read an earlier result
  if (lane_id() == 0) room[warp_id()] = x;
  sync_block();
  T sum = room[0];
  for (int w = 1; w < n_warps; ++w) sum += room[w];
  return sum;
}

}  // namespace foretoken::cuda
