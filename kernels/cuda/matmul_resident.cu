// The ring product for one or two tokens (sm_90): a block prepares the rows itself, norm and
// rounding included, and keeps its part of them in shared memory; the ring holds weights alone and
// fills while earlier kernels still run. One kernel instead of two, and nothing is re-read from L2
// but the rows. Bit for bit what prepare_rows, matmul_simple and finish_parts give.
#include "common/base/check.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/prepare.cuh"
#include "kernels/cuda/ring.cuh"

namespace foretoken::cuda {
namespace {

constexpr int kTokens = 8;  // columns of the product; only the first ones exist
constexpr int kTileBytes = kTokens * kTilePitch * 4;
constexpr int kLeastStages = 3;
constexpr int kMostStages = 12;
constexpr int kBarrierBytes = 2 * kMostStages * 8;
constexpr int kRoomBytes = kPrepareThreads / 32 * 4;
static_assert(kPrepareThreads == 32 * kRingConsumers);

struct ResidentArgs {
  MatmulArgs matmul;
  FinishArgs finish;
  PrepareArgs prepare;
  std::int32_t n_stages;
};

// A place in the ring and the turn it is in, counted instead of divided.
struct Turn {
  int stage = 0;
  int phase = 0;
  __device__ __forceinline__ void next(int n_stages) {
    if (++stage == n_stages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
template <int kWeightBytes>
__device__ __forceinline__ void feed_weights(const std::byte* w,
                                             int n,
                                             int n_stages,
                                             std::byte* stages,
                                             std::uint64_t* full,
                                             std::uint64_t* empty) {
  Turn turn;
  for (int i = 0; i < n; ++i, turn.next(n_stages)) {
    if (i >= n_stages) barrier_wait(empty + turn.stage, turn.phase ^ 1);
    barrier_expect(full + turn.stage, kWeightBytes);
    bulk_copy_once(stages + turn.stage * kWeightBytes, w + std::int64_t{i} * kWeightBytes,
                   kWeightBytes, full + turn.stage);
  }
  let_next_kernel_start();
}

// The block's part of K of every row, into `rows`; by the consumers.
__device__ __forceinline__ void prepare_part(
    const PrepareArgs& p, int first_k, int n_blocks, std::byte* rows, float* room) {
  const bool is_bf16 = p.input == Input::kBf16;
  for (int token = 0; token < p.n_rows; ++token) {
    const PreparedRow row(p, token, room, [] { sync_first<kPrepareThreads>(); });
    for (int k = 2 * static_cast<int>(threadIdx.x); k < n_blocks * fragment::kBlockK;
         k += 2 * kPrepareThreads)
      *reinterpret_cast<std::uint32_t*>(rows + fragment::resident_offset(p.n_rows, token, k)) =
          row.pair(first_k + k, is_bf16);
  }
  sync_first<kPrepareThreads>();
}
#endif

// Grid: row blocks, 1, parts of K; a cluster is all parts of a row block.
template <DType kWeights, Finish kFinish>
__global__ void __launch_bounds__(kRingThreads, 2) matmul_resident_kernel(ResidentArgs args) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  constexpr int kWeightBytes = fragment::block_bytes(kElement<kWeights>);
  const MatmulArgs& p = args.matmul;
  const int n_stages = args.n_stages, n_tokens = args.prepare.n_rows;
  std::byte* stages = shared_memory();
  float* tile = reinterpret_cast<float*>(stages + n_stages * kWeightBytes);
  auto* full = reinterpret_cast<std::uint64_t*>(reinterpret_cast<std::byte*>(tile) + kTileBytes);
  std::uint64_t* empty = full + kMostStages;
  float* room = reinterpret_cast<float*>(empty + kMostStages);
  std::byte* rows = reinterpret_cast<std::byte*>(room) + kRoomBytes;
  const int part = static_cast<int>(blockIdx.z);
  const std::int64_t begin = fragment::part_begin(p.n_k_blocks, p.n_parts, part);
  const int n = static_cast<int>(fragment::part_begin(p.n_k_blocks, p.n_parts, part + 1) - begin);
  if (threadIdx.x == 0) {
    for (int s = 0; s < n_stages; ++s) {
      barrier_init(full + s, 1);
      barrier_init(empty + s, kRingConsumers);
    }
    barrier_fence();
  }
  sync_block();
  const int warp = warp_id(), lane = lane_id();
  if (warp == kRingConsumers) {
    if (lane == 0)
      feed_weights<kWeightBytes>(
          p.weights + (static_cast<std::int64_t>(blockIdx.x) * p.n_k_blocks + begin) * kWeightBytes,
          n, n_stages, stages, full, empty);
    sync_warp();
  } else {
    wait_for_earlier_kernels();
    prepare_part(args.prepare, static_cast<int>(begin) * fragment::kBlockK, n, rows, room);
    const auto load = [](const std::byte* at) { return load_words(at); };
    const bool exists = fragment::b_token(lane) < n_tokens;
    float acc[1][4] = {};
    Turn turn;
#pragma unroll 1
    for (int i = 0; i < n; ++i, turn.next(n_stages)) {
      barrier_wait(full + turn.stage, turn.phase);
      const auto load_b = [&](int, int half) {
        if (!exists) return Words4{};
        return load_words(rows + fragment::resident_lane_offset(n_tokens, i, half, lane));
      };
      multiply_block<kWeights, 1>(stages + turn.stage * kWeightBytes, warp, lane, load, load_b,
                                  acc);
      sync_warp();
      if (lane == 0) barrier_arrive(empty + turn.stage);
    }
    store_tile(acc, tile);
  }
  finish_cluster<kFinish>(p, args.finish, tile);
#endif
}

int rows_bytes(const MatmulArgs& args, int n_tokens) {
  const auto most = static_cast<int>((args.n_k_blocks + args.n_parts - 1) / args.n_parts);
  return most * fragment::resident_bytes(n_tokens);
}

int weight_bytes(const MatmulArgs& args) {
  return fragment::block_bytes(static_cast<int>(size_bytes(args.dtype)));
}

int stages_of(const MatmulArgs& args, int n_tokens) {
  const int left =
      kRingSharedBytes - kTileBytes - kBarrierBytes - kRoomBytes - rows_bytes(args, n_tokens);
  const int stages = left / weight_bytes(args);
  return stages < kMostStages ? stages : kMostStages;
}

template <DType kWeights>
void start(const Launch& l, const ResidentArgs& args) {
  const char* name = "matmul_resident";
  if (args.finish.finish == Finish::kStore)
    launch(l, name, matmul_resident_kernel<kWeights, Finish::kStore>, args);
  if (args.finish.finish == Finish::kAdd)
    launch(l, name, matmul_resident_kernel<kWeights, Finish::kAdd>, args);
  if (args.finish.finish == Finish::kSwiglu)
    launch(l, name, matmul_resident_kernel<kWeights, Finish::kSwiglu>, args);
}

}  // namespace

bool resident_fits(const MatmulArgs& args, std::int32_t n_tokens) {
  return n_tokens <= kResidentTokens && stages_of(args, n_tokens) >= kLeastStages;
}

void matmul_resident(const Launch& launch_in,
                     const MatmulArgs& args,
                     const PrepareArgs& prepare,
                     const FinishArgs& finish) {
  FORETOKEN_CHECK(resident_fits(args, prepare.n_rows));
  const ResidentArgs all{args, finish, prepare, stages_of(args, prepare.n_rows)};
  Launch l = launch_in;
  l.x = static_cast<unsigned>(args.n_row_blocks);
  l.z = static_cast<unsigned>(args.n_parts);
  l.cluster = args.n_parts;
  l.n_threads = kRingThreads;
  l.shared_bytes =
      static_cast<std::size_t>(all.n_stages * weight_bytes(args) + kTileBytes + kBarrierBytes +
                               kRoomBytes + rows_bytes(args, prepare.n_rows));
  if (args.dtype == DType::kBf16) start<DType::kBf16>(l, all);
  if (args.dtype == DType::kF16) start<DType::kF16>(l, all);
  if (args.dtype == DType::kI8) start<DType::kI8>(l, all);
  if (args.dtype == DType::kF8E4M3) start<DType::kF8E4M3>(l, all);
}

}  // namespace foretoken::cuda
