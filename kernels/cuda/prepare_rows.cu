// Rows made ready to be multiplied: normalised, rounded to the product's 16 bits, laid out as B
// fragments. One block a token; tokens that only fill a group are zero.
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"

namespace foretoken::cuda {
namespace {

constexpr int kThreads = 256;

__device__ __forceinline__ std::uint32_t to_half(float x, bool is_bf16) {
  if (is_bf16) return f32_to_bf16(x);
  // The largest half stands for what lies beyond it; an infinity stays one.
  const float limited = x > 65504.0f ? 65504.0f : x < -65504.0f ? -65504.0f : x;
  return f32_to_f16(x - x == 0.0f ? limited : x);
}

template <Input kInput>
__global__ void __launch_bounds__(kThreads) prepare_rows_kernel(PrepareArgs p) {
  wait_for_earlier_kernels();
  let_next_kernel_start();
  __shared__ float room[kThreads / 32];
  const int t = static_cast<int>(threadIdx.x), token = static_cast<int>(blockIdx.x);
  const bool real = token < p.n_rows;
  const float* x = p.x;
  if (real) x += std::int64_t{p.rows != nullptr ? p.rows[token] : token} * p.n_in;
  float scale = 1.0f;
  if (p.norm != nullptr) {  // the same for every thread, so all of them meet in the sum
    float squares = 0;
    if (real)
      for (int k = t; k < p.n_in; k += kThreads) squares = fma32(x[k], x[k], squares);
    const float mean = block_sum(squares, room, kThreads / 32) / static_cast<float>(p.n_in);
    scale = 1.0f / sqrtf(mean + p.norm_eps);
  }
  const auto value = [&](int k) {
    if (!real || k >= p.n_in) return 0.0f;
    return p.norm != nullptr ? x[k] * scale * p.norm[k] : x[k];
  };
  if constexpr (kInput == Input::kF32) {
    float* out = static_cast<float*>(p.out) + std::int64_t{token} * p.n_in;
    for (int k = t; k < p.n_in; k += kThreads) out[k] = value(k);
  } else {
    constexpr bool kBf16 = kInput == Input::kBf16;
    std::byte* out = static_cast<std::byte*>(p.out);
    const int n_padded =
        static_cast<int>(fragment::blocks_of(p.n_in, fragment::kBlockK)) * fragment::kBlockK;
    for (int k = 2 * t; k < n_padded; k += 2 * kThreads) {
      const std::uint32_t pair = to_half(value(k), kBf16) | to_half(value(k + 1), kBf16) << 16;
      *reinterpret_cast<std::uint32_t*>(out + fragment::x_offset(p.n_groups, token, k)) = pair;
    }
  }
}

}  // namespace

void prepare_rows(const Launch& launch_in, const PrepareArgs& args) {
  Launch l = launch_in;
  l.x = static_cast<unsigned>(args.n_groups * fragment::kTileTokens);
  l.n_threads = kThreads;
  const char* name = "prepare_rows";
  if (args.input == Input::kF32) launch(l, name, prepare_rows_kernel<Input::kF32>, args);
  if (args.input == Input::kBf16) launch(l, name, prepare_rows_kernel<Input::kBf16>, args);
  if (args.input == Input::kF16) launch(l, name, prepare_rows_kernel<Input::kF16>, args);
}

}  // namespace foretoken::cuda
