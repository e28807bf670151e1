// The sum of squares of a row in one fixed order, in any op: the product that ends the row
// as it writes it, or a kernel that reads it later. Pieces of 128 columns: a lane sums four, 32
// apart, then lanes by halving; then the pieces: a lane every 32nd, then lanes by halving. All of
// it by one warp.
#pragma once

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/reduce.cuh"

namespace foretoken::cuda {

// One piece; value(i): column i of it, zero beyond the row.
template <class Value>
__device__ __forceinline__ float squares_of_piece(const Value& value) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kSquaresPiece; i += 32) {
    const float x = value(i + lane_id());
    sum = fma32(x, x, sum);
  }
  return warp_sum(sum);
}

// What a row of n values is multiplied with before its gains.
__device__ __forceinline__ float rms_scale(float squares, int n, float eps) {
  return 1.0f / sqrtf(squares / static_cast<float>(n) + eps);
}

// Of rows with these pieces; pieces[row] may be null.
template <int kRows>
__device__ __forceinline__ void rms_scales(const float* const (&pieces)[kRows],
                                           int n,
                                           float eps,
                                           float (&scales)[kRows]) {
  float sums[kRows] = {};
  for (int i = lane_id(); i < squares_per_row(n); i += 32)
#pragma unroll
    for (int row = 0; row < kRows; ++row)
      if (pieces[row] != nullptr) sums[row] += pieces[row][i];
#pragma unroll
  for (int row = 0; row < kRows; ++row) scales[row] = rms_scale(warp_sum(sums[row]), n, eps);
}

}  // namespace foretoken::cuda
