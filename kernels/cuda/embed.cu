// A token's row of the packed table, widened and scaled. One block a row.
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.cuh"

namespace foretoken::cuda {
namespace {

constexpr int kThreads = 128;

struct EmbedKernelArgs {
  const std::byte* weights;
  const float* scales;
  const std::int32_t* tokens;
  float* hidden;
  std::int32_t n_in;
  float scale;
};

template <DType kWeights>
__global__ void __launch_bounds__(kThreads) embed_kernel(EmbedKernelArgs p) {
  wait_for_earlier_kernels();
  let_next_kernel_start();
  const std::int64_t id = p.tokens[blockIdx.x];
  const std::int64_t n_k_blocks = fragment::blocks_of(p.n_in, fragment::kBlockK);
  const float row_scale = p.scales != nullptr ? p.scales[id] : 1.0f;
  float* out = p.hidden + static_cast<std::int64_t>(blockIdx.x) * p.n_in;
  for (int k = static_cast<int>(threadIdx.x); k < p.n_in; k += kThreads) {
    float value = 0;
    if constexpr (kWeights == DType::kF32) {
      value = reinterpret_cast<const float*>(p.weights)[id * p.n_in + k];
    } else if constexpr (kWeights == DType::kBf16 || kWeights == DType::kF16) {
      const auto h = *reinterpret_cast<const std::uint16_t*>(
          p.weights + fragment::weight_offset(2, n_k_blocks, id, k));
      value = kWeights == DType::kBf16 ? bf16_to_f32(h) : f16_to_f32(h);
    } else {
      const auto code =
          static_cast<std::uint8_t>(p.weights[fragment::weight_offset(1, n_k_blocks, id, k)]);
      value = kWeights == DType::kI8 ? static_cast<float>(static_cast<std::int8_t>(code))
                                     : e4m3_to_f32(code);
      value *= row_scale;
    }
    out[k] = value * p.scale;
  }
}

}  // namespace

void embed(const Launch& launch_in,
           const EmbedArgs& args,
           const std::byte* weights,
           const float* scales) {
  Launch l = launch_in;
  l.x = static_cast<unsigned>(args.n_rows);
  l.n_threads = kThreads;
  const EmbedKernelArgs p{
      weights,   scales, args.tokens, args.hidden, static_cast<std::int32_t>(args.table->n_in),
      args.scale};
  switch (args.table->dtype) {
    case DType::kF32:
      return launch(l, "embed", embed_kernel<DType::kF32>, p);
    case DType::kBf16:
      return launch(l, "embed", embed_kernel<DType::kBf16>, p);
    case DType::kF16:
      return launch(l, "embed", embed_kernel<DType::kF16>, p);
    case DType::kI8:
      return launch(l, "embed", embed_kernel<DType::kI8>, p);
    case DType::kF8E4M3:
      return launch(l, "embed", embed_kernel<DType::kF8E4M3>, p);
  }
}

}  // namespace foretoken::cuda
