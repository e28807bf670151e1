// A row on its way into a product: normalised, then rounded to 16 bits. One arithmetic for the
// kernel that writes prepared rows and for the product that prepares its own.
#pragma once

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/reduce.cuh"

namespace foretoken::cuda {

inline constexpr int kPrepareThreads = 256;  // their number fixes the order of the sum of squares

__device__ __forceinline__ std::uint32_t to_half(float x, bool is_bf16) {
  if (is_bf16) return f32_to_bf16(x);
  // The largest half stands for what lies beyond it; an infinity stays one.
  const float limited = x > 65504.0f ? 65504.0f : x < -65504.0f ? -65504.0f : x;
  return f32_to_f16(x - x == 0.0f ? limited : x);
}

// Made by threads 0 .. kPrepareThreads - 1 together; a token that does not exist is zero.
class PreparedRow {
 public:
  template <class Sync>
  __device__ __forceinline__
  PreparedRow(const PrepareArgs& p, int token, float* room, const Sync& sync)
      : x_(p.x), norm_(p.norm), n_(token < p.n_rows ? p.n_in : 0) {
    if (n_ > 0) x_ += std::int64_t{p.rows != nullptr ? p.rows[token] : token} * p.n_in;
    if (p.norm == nullptr) return;  // the same for every thread, so all of them meet in the sum
    float squares = 0;
    for (int k = static_cast<int>(threadIdx.x); k < n_; k += kPrepareThreads)
      squares = fma32(x_[k], x_[k], squares);
    const float mean =
        block_sum(squares, room, kPrepareThreads / 32, sync) / static_cast<float>(p.n_in);
    scale_ = 1.0f / sqrtf(mean + p.norm_eps);
  }
  __device__ __forceinline__ float operator()(int k) const {
    if (k >= n_) return 0.0f;
    return norm_ != nullptr ? x_[k] * scale_ * norm_[k] : x_[k];
  }
  __device__ __forceinline__ std::uint32_t pair(int k, bool is_bf16) const {
    return to_half((*this)(k), is_bf16) | to_half((*this)(k + 1), is_bf16) << 16;
  }

 private:
  const float* x_;
  const float* norm_;
  int n_;
  float scale_ = 1.0f;
};

}  // namespace foretoken::cuda
