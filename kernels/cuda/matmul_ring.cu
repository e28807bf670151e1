// The fast product for few tokens (sm_90): a ring of weight blocks in shared memory, filled by the
// copy engine ahead of eight warps that multiply; the parts of K are the blocks of a cluster and
// are added in order through its shared memory; scale, bias, residual or SwiGLU in the same kernel.
// Weights never change, so the ring fills before the kernel waits for the one in front of it.
// Bit for bit what matmul_simple and finish_parts give.
#include "common/base/check.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ring.cuh"

namespace foretoken::cuda {
namespace {

template <DType kWeights, int kGroups>
struct Shape {
  static constexpr int kWeightBytes = fragment::block_bytes(kElement<kWeights>);
  static constexpr int kXBytes = kGroups * fragment::kGroupBytes;
  static constexpr int kStageBytes = kWeightBytes + kXBytes;
  static constexpr int kTileBytes = kGroups * fragment::kTileTokens * kTilePitch * 4;
  static constexpr int kStages = (kRingSharedBytes - kTileBytes - 256) / kStageBytes;
  static constexpr int kBytes = kStages * kStageBytes + kTileBytes + 2 * kStages * 8;
  static_assert(kStages >= 3);
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
// The copying lane: every stage's weights first, then, once earlier kernels are done, its rows.
template <DType kWeights, int kGroups>
__device__ __forceinline__ void feed(const MatmulArgs& p,
                                     std::int64_t begin,
                                     int n,
                                     std::byte* stages,
                                     std::uint64_t* full,
                                     std::uint64_t* empty) {
  using S = Shape<kWeights, kGroups>;
  const std::byte* w =
      p.weights + (static_cast<std::int64_t>(blockIdx.x) * p.n_k_blocks + begin) * S::kWeightBytes;
  const std::byte* x = p.x + begin * p.n_groups * fragment::kGroupBytes;
  const auto start_weights = [&](int i) {
    const int s = i % S::kStages;
    barrier_expect(full + s, S::kStageBytes);
    bulk_copy_once(stages + s * S::kStageBytes, w + std::int64_t{i} * S::kWeightBytes,
                   S::kWeightBytes, full + s);
  };
  const auto start_rows = [&](int i) {
    const int s = i % S::kStages;
    bulk_copy(stages + s * S::kStageBytes + S::kWeightBytes, x + std::int64_t{i} * S::kXBytes,
              S::kXBytes, full + s);
  };
  const int n_first = n < S::kStages ? n : S::kStages;
  for (int i = 0; i < n_first; ++i) start_weights(i);
  wait_for_earlier_kernels();
  for (int i = 0; i < n_first; ++i) start_rows(i);
  for (int i = n_first; i < n; ++i) {
    barrier_wait(empty + i % S::kStages, (i / S::kStages - 1) % 2);
    start_weights(i);
    start_rows(i);
  }
  let_next_kernel_start();
}

template <DType kWeights, int kGroups>
__device__ __forceinline__ void consume(
    int n, const std::byte* stages, float* tile, std::uint64_t* full, std::uint64_t* empty) {
  using S = Shape<kWeights, kGroups>;
  const int warp = warp_id(), lane = lane_id();
  const auto load = [](const std::byte* at) { return load_words(at); };
  float acc[kGroups][4] = {};
#pragma unroll 1
  for (int i = 0; i < n; ++i) {
    const int s = i % S::kStages;
    barrier_wait(full + s, i / S::kStages % 2);
    const std::byte* stage = stages + s * S::kStageBytes;
    multiply_block<kWeights, kGroups>(stage, warp, lane, load,
                                      PackedRows{stage + S::kWeightBytes, lane}, acc);
    sync_warp();
    if (lane == 0) barrier_arrive(empty + s);
  }
  store_tile(acc, tile);
}
#endif

// Grid: row blocks, 1, parts of K; a cluster is all parts of a row block.
template <DType kWeights, int kGroups, Finish kFinish>
__global__ void __launch_bounds__(kRingThreads, 2) matmul_ring_kernel(MatmulArgs p, FinishArgs f) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  using S = Shape<kWeights, kGroups>;
  std::byte* stages = shared_memory();
  float* tile = reinterpret_cast<float*>(stages + S::kStages * S::kStageBytes);
  auto* full =
      reinterpret_cast<std::uint64_t*>(stages + S::kStages * S::kStageBytes + S::kTileBytes);
  std::uint64_t* empty = full + S::kStages;
  const int part = static_cast<int>(blockIdx.z);
  const std::int64_t begin = fragment::part_begin(p.n_k_blocks, p.n_parts, part);
  const int n = static_cast<int>(fragment::part_begin(p.n_k_blocks, p.n_parts, part + 1) - begin);
  if (threadIdx.x == 0) {
    for (int s = 0; s < S::kStages; ++s) {
      barrier_init(full + s, 1);
      barrier_init(empty + s, kRingConsumers);
    }
    barrier_fence();
  }
  sync_block();
  if (warp_id() == kRingConsumers) {
    if (lane_id() == 0) feed<kWeights, kGroups>(p, begin, n, stages, full, empty);
    sync_warp();
  } else {
    consume<kWeights, kGroups>(n, stages, tile, full, empty);
  }
  finish_cluster<kFinish>(p, f, tile);
#endif
}

template <DType kWeights, int kGroups>
void start(const Launch& launch_in, const MatmulArgs& args, const FinishArgs& finish) {
  Launch l = launch_in;
  l.shared_bytes = Shape<kWeights, kGroups>::kBytes;
  const char* name = "matmul_ring";
  if (finish.finish == Finish::kStore)
    launch(l, name, matmul_ring_kernel<kWeights, kGroups, Finish::kStore>, args, finish);
  if (finish.finish == Finish::kAdd)
    launch(l, name, matmul_ring_kernel<kWeights, kGroups, Finish::kAdd>, args, finish);
  if (finish.finish == Finish::kSwiglu)
    launch(l, name, matmul_ring_kernel<kWeights, kGroups, Finish::kSwiglu>, args, finish);
}

template <DType kWeights>
void start(const Launch& l, const MatmulArgs& args, const FinishArgs& finish) {
  if (args.n_groups == 1)
    start<kWeights, 1>(l, args, finish);
  else
    start<kWeights, 2>(l, args, finish);
}

}  // namespace

void matmul_ring(const Launch& launch_in, const MatmulArgs& args, const FinishArgs& finish) {
  FORETOKEN_CHECK(args.n_groups <= kRingTokens / fragment::kTileTokens);
  Launch l = launch_in;
  l.x = static_cast<unsigned>(args.n_row_blocks);
  l.z = static_cast<unsigned>(args.n_parts);
  l.cluster = args.n_parts;
  l.n_threads = kRingThreads;
  if (args.dtype == DType::kBf16) start<DType::kBf16>(l, args, finish);
  if (args.dtype == DType::kF16) start<DType::kF16>(l, args, finish);
  if (args.dtype == DType::kI8) start<DType::kI8>(l, args, finish);
  if (args.dtype == DType::kF8E4M3) start<DType::kF8E4M3>(l, args, finish);
}

}  // namespace foretoken::cuda
