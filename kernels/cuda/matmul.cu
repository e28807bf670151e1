// The simple products: weights straight from memory into fragments, partial sums of the parts of K
// to a workspace, a second kernel that adds them in order. The oracle of the faster kernels, and
// what multiplies prompts.
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/product.cuh"

namespace foretoken::cuda {
namespace {

constexpr int kThreads = 256;  // a warp for each row tile of a block
constexpr int kFinishThreads = 64;

// Grid: tiles of kGroups groups, row blocks, parts of K. Tiles first, so that those of a long
// prompt that share weights run together and find them in L2.
template <DType kWeights, int kGroups>
__global__ void __launch_bounds__(kThreads) matmul_simple_kernel(MatmulArgs p) {
  wait_for_earlier_kernels();
  let_next_kernel_start();
  constexpr int kBlockBytes = fragment::block_bytes(kElement<kWeights>);
  const int warp = warp_id(), lane = lane_id(), part = static_cast<int>(blockIdx.z);
  const auto row_block = static_cast<std::int64_t>(blockIdx.y);
  const auto first_group = static_cast<std::int64_t>(blockIdx.x) * kGroups;
  const std::int64_t begin = fragment::part_begin(p.n_k_blocks, p.n_parts, part);
  const std::int64_t end = fragment::part_begin(p.n_k_blocks, p.n_parts, part + 1);
  const std::byte* w = p.weights + (row_block * p.n_k_blocks + begin) * kBlockBytes;
  const std::byte* x = p.x + (begin * p.n_groups + first_group) * fragment::kGroupBytes;
  const auto load = [](const std::byte* at) { return load_weights(at); };
  float acc[kGroups][4] = {};
#pragma unroll 1
  for (std::int64_t k = begin; k < end; ++k) {
    multiply_block<kWeights, kGroups>(w, warp, lane, load, PackedRows{x, lane}, acc);
    w += kBlockBytes;
    x += std::int64_t{p.n_groups} * fragment::kGroupBytes;
  }
  const std::int64_t n_rows = std::int64_t{p.n_row_blocks} * fragment::kBlockRows;
  float* out = p.parts + (std::int64_t{part} * p.n_groups + first_group) * 8 * n_rows +
               row_block * fragment::kBlockRows + warp * fragment::kTileRows;
#pragma unroll
  for (int group = 0; group < kGroups; ++group)
#pragma unroll
    for (int i = 0; i < fragment::kCValues; ++i)
      out[std::int64_t{group * 8 + fragment::c_token(lane, i)} * n_rows +
          fragment::c_row(lane, i)] = acc[group][i];
}

// f32 weights, row by row: a warp a row, lanes take every 32nd value of K. For tests and small
// models.
__global__ void __launch_bounds__(kThreads) matmul_f32_kernel(MatmulArgs p) {
  wait_for_earlier_kernels();
  let_next_kernel_start();
  const int lane = lane_id(), n_in = p.n_k_blocks;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * (kThreads / 32) + warp_id();
  const std::int64_t token = static_cast<std::int64_t>(blockIdx.y) * 8;
  const float* w = reinterpret_cast<const float*>(p.weights) + row * n_in;
  const float* x = reinterpret_cast<const float*>(p.x) + token * n_in;
  float acc[8] = {};
  for (int k = lane; k < n_in; k += 32) {
    const float weight = w[k];
#pragma unroll
    for (int t = 0; t < 8; ++t) acc[t] = fma32(weight, x[std::int64_t{t} * n_in + k], acc[t]);
  }
  const std::int64_t n_rows = std::int64_t{p.n_row_blocks} * fragment::kBlockRows;
#pragma unroll
  for (int t = 0; t < 8; ++t) {
    for (int step = 16; step > 0; step /= 2) acc[t] += shuffle_xor(acc[t], step);
    if (lane == t) p.parts[(token + t) * n_rows + row] = acc[t];
  }
}

// A warp for each row block of a token.
template <Finish kFinish>
__global__ void __launch_bounds__(kFinishThreads) finish_parts_kernel(MatmulArgs p, FinishArgs f) {
  wait_for_earlier_kernels();
  let_next_kernel_start();
  const int row_block = static_cast<int>(blockIdx.x) * (kFinishThreads / 32) + warp_id();
  const int token = static_cast<int>(blockIdx.y);
  if (row_block >= p.n_row_blocks) return;
  const std::int64_t n_rows = std::int64_t{p.n_row_blocks} * fragment::kBlockRows;
  const float* parts =
      p.parts + token * n_rows + static_cast<std::int64_t>(row_block) * fragment::kBlockRows;
  float y[kLaneSums], old[kLaneSums] = {};
  if constexpr (kFinish == Finish::kAdd) load_old(token, row_block, f, old);
#pragma unroll
  for (int i = 0; i < kLaneSums; ++i) {
    const int row = lane_row<kFinish>(i);
    const std::int64_t packed = std::int64_t{row_block} * fragment::kBlockRows + row;
    y[i] = parts[row];
    for (int part = 1; part < p.n_parts; ++part)
      y[i] += parts[std::int64_t{part} * p.n_groups * 8 * n_rows + row];
    if (f.scales != nullptr) y[i] *= f.scales[packed];
    if (f.bias != nullptr) y[i] += f.bias[packed];
  }
  finish_block<kFinish>(token, row_block, f, nullptr, y, old);
}

template <DType kWeights>
void start_simple(const Launch& l, const MatmulArgs& args, int groups) {
  const char* name = "matmul_simple";
  if (groups == 1) launch(l, name, matmul_simple_kernel<kWeights, 1>, args);
  if (groups == 2) launch(l, name, matmul_simple_kernel<kWeights, 2>, args);
  if (groups == 4) launch(l, name, matmul_simple_kernel<kWeights, 4>, args);
  if (groups == 8) launch(l, name, matmul_simple_kernel<kWeights, 8>, args);
}

}  // namespace

void matmul_simple(const Launch& launch_in, const MatmulArgs& args) {
  const int groups = group_tile(args.n_groups);
  Launch l = launch_in;
  l.x = static_cast<unsigned>(args.n_groups / groups);
  l.y = static_cast<unsigned>(args.n_row_blocks);
  l.z = static_cast<unsigned>(args.n_parts);
  l.n_threads = kThreads;
  if (args.dtype == DType::kBf16) start_simple<DType::kBf16>(l, args, groups);
  if (args.dtype == DType::kF16) start_simple<DType::kF16>(l, args, groups);
  if (args.dtype == DType::kI8) start_simple<DType::kI8>(l, args, groups);
  if (args.dtype == DType::kF8E4M3) start_simple<DType::kF8E4M3>(l, args, groups);
}

void matmul_f32(const Launch& launch_in, const MatmulArgs& args) {
  Launch l = launch_in;
  l.x = static_cast<unsigned>(args.n_row_blocks) * fragment::kBlockRows / (kThreads / 32);
  l.y = static_cast<unsigned>(args.n_groups);
  l.n_threads = kThreads;
  launch(l, "matmul_f32", matmul_f32_kernel, args);
}

void finish_parts(const Launch& launch_in, const MatmulArgs& args, const FinishArgs& finish) {
  Launch l = launch_in;
  constexpr int kWarps = kFinishThreads / 32;
  l.x = static_cast<unsigned>((args.n_row_blocks + kWarps - 1) / kWarps);
  l.y = static_cast<unsigned>(finish.n_tokens);
  l.n_threads = kFinishThreads;
  const char* name = "finish_parts";
  if (finish.finish == Finish::kStore)
    launch(l, name, finish_parts_kernel<Finish::kStore>, args, finish);
  if (finish.finish == Finish::kAdd)
    launch(l, name, finish_parts_kernel<Finish::kAdd>, args, finish);
  if (finish.finish == Finish::kSwiglu)
    launch(l, name, finish_parts_kernel<Finish::kSwiglu>, args, finish);
}

}  // namespace foretoken::cuda
