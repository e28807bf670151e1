// Rows made ready to be multiplied: normalised, rounded to the product's 16 bits, laid out as B
// fragments. One block a token; tokens that only fill a group are zero.
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/prepare.cuh"

namespace foretoken::cuda {
namespace {

constexpr int kThreads = kPrepareThreads;

template <Input kInput>
__global__ void __launch_bounds__(kThreads) prepare_rows_kernel(PrepareArgs p) {
  wait_for_earlier_kernels();
  let_next_kernel_start();
  __shared__ float room[kThreads / 32];
  const int t = static_cast<int>(threadIdx.x), token = static_cast<int>(blockIdx.x);
  const PreparedRow row(p, token, room, [] { sync_block(); });
  if constexpr (kInput == Input::kF32) {
    float* out = static_cast<float*>(p.out) + std::int64_t{token} * p.n_in;
    for (int k = t; k < p.n_in; k += kThreads) out[k] = row(k);
  } else {
    constexpr bool kBf16 = kInput == Input::kBf16;
    std::byte* out = static_cast<std::byte*>(p.out);
    const int n_padded =
        static_cast<int>(fragment::blocks_of(p.n_in, fragment::kBlockK)) * fragment::kBlockK;
    for (int k = 2 * t; k < n_padded; k += 2 * kThreads) {
      *reinterpret_cast<std::uint32_t*>(out + fragment::x_offset(p.n_groups, token, k)) =
          row.pair(k, kBf16);
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
