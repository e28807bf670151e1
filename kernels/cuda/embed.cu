// A token's row of the packed table, widened and scaled, and its squares. One block a row.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/squares.cuh"

namespace foretoken::cuda {
namespace {

constexpr int kThreads = 128;

struct EmbedKernelArgs {
  const std::byte* weights;
  const float* scales;
  const std::int32_t* tokens;
  float* hidden;
  float* squares;
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
  const auto value_of = [&](int k) {
    if constexpr (kWeights == DType::kF32)
      return reinterpret_cast<const float*>(p.weights)[id * p.n_in + k];
    if constexpr (kWeights == DType::kBf16 || kWeights == DType::kF16) {
      const auto h = *reinterpret_cast<const std::uint16_t*>(
          p.weights + fragment::weight_offset(2, n_k_blocks, id, k));
      return kWeights == DType::kBf16 ? bf16_to_f32(h) : f16_to_f32(h);
    }
    const auto code =
        static_cast<std::uint8_t>(p.weights[fragment::weight_offset(1, n_k_blocks, id, k)]);
    const float value = kWeights == DType::kI8 ? static_cast<float>(static_cast<std::int8_t>(code))
                                               : e4m3_to_f32(code);
    return value * row_scale;
  };
  for (int piece = warp_id(); piece < squares_per_row(p.n_in); piece += kThreads / 32) {
    const int first = piece * kSquaresPiece;
    const float squares = squares_of_piece([&](int i) {
      const int k = first + i;
      return k < p.n_in ? out[k] = value_of(k) * p.scale : 0.0f;
    });
    if (p.squares != nullptr && lane_id() == 0)
      p.squares[static_cast<std::int64_t>(blockIdx.x) * squares_per_row(p.n_in) + piece] = squares;
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
  const EmbedKernelArgs p{weights,     scales,       args.tokens,
                          args.hidden, args.squares, static_cast<std::int32_t>(args.table->n_in),
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
    case DType::kI4:
      return;  // this device holds none
  }
}

}  // namespace foretoken::cuda
