// Rows made ready for the simple products: normalised, rounded to the product's 16 bits, laid out
// as B fragments. One block a token; tokens that only fill a group are zero. And the squares of
// rows that came from elsewhere, for the products that prepare rows themselves.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/prepare.cuh"

namespace foretoken::cuda {
namespace {

constexpr int kThreads = kPrepareThreads;

// Both wait before their first read: rows are what earlier kernels wrote.
template <Input kInput>
__global__ void __launch_bounds__(kThreads) prepare_rows_kernel(PrepareArgs p) {
  wait_for_earlier_kernels();
  let_next_kernel_start();
  __shared__ float room[kMostPieces];
  const int t = static_cast<int>(threadIdx.x), token = static_cast<int>(blockIdx.x);
  const PreparedRow row(p, token, room);
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
          to_halves(row(k), row(k + 1), kBf16);
    }
  }
}

__global__ void __launch_bounds__(kThreads) row_squares_kernel(PrepareArgs p) {
  wait_for_earlier_kernels();
  let_next_kernel_start();
  const int token = static_cast<int>(blockIdx.x);
  squares_by_block(row_of(p, token), p.n_in,
                   static_cast<float*>(p.out) + token * squares_per_row(p.n_in));
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

void row_squares(const Launch& launch_in, const PrepareArgs& args) {
  Launch l = launch_in;
  l.x = static_cast<unsigned>(args.n_rows);
  l.n_threads = kThreads;
  launch(l, "row_squares", row_squares_kernel, args);
}

}  // namespace foretoken::cuda
