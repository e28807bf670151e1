// A row on its way into a simple product: normalised, then rounded to 16 bits. By a block of
// kPrepareThreads; a token that does not exist is zero. Takes the sum of squares itself, whatever
// others know of it: the simple path is the oracle.
#pragma once

#include "kernels/cuda/squares.cuh"

namespace foretoken::cuda {

inline constexpr int kPrepareThreads = 256;
inline constexpr int kMostPieces = 512;

__device__ __forceinline__ const float* row_of(const PrepareArgs& p, int token) {
  return p.x + std::int64_t{p.rows != nullptr ? p.rows[token] : token} * p.n_in;
}

// The pieces of row x's squares into `pieces`, by a block.
__device__ __forceinline__ void squares_by_block(const float* x, int n, float* pieces) {
  for (int piece = warp_id(); piece < squares_per_row(n); piece += kPrepareThreads / 32) {
    const int first = piece * kSquaresPiece;
    const float sum = squares_of_piece([&](int i) { return first + i < n ? x[first + i] : 0.0f; });
    if (lane_id() == 0) pieces[piece] = sum;
  }
}

class PreparedRow {
 public:
  // room: kMostPieces floats of shared memory.
  __device__ __forceinline__ PreparedRow(const PrepareArgs& p, int token, float* room)
      : x_(p.x), norm_(p.norm), n_(token < p.n_rows ? p.n_in : 0) {
    if (n_ == 0) return;
    x_ = row_of(p, token);
    if (p.norm == nullptr) return;
    squares_by_block(x_, n_, room);
    sync_block();
    const float* const pieces[1] = {room};
    float scale[1];
    rms_scales(pieces, n_, p.norm_eps, scale);
    scale_ = scale[0];
  }
  __device__ __forceinline__ float operator()(int k) const {
    if (k >= n_) return 0.0f;
    return norm_ != nullptr ? x_[k] * scale_ * norm_[k] : x_[k];
  }

 private:
  const float* x_;
  const float* norm_;
  int n_;
  float scale_ = 1.0f;
};

}  // namespace foretoken::cuda
