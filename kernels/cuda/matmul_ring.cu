// The fast product for few tokens (sm_90), one kernel from the rows as they lie in memory to what
// becomes of the sums. A ring in shared memory: the copy engine fills it with weights, four warps
// with rows (normalised, rounded, as B fragments), eight warps multiply. Parts of K are the blocks
// of a cluster and are added in order through its shared memory; then scale, bias, residual and its
// squares, SwiGLU, or rotation and append. Bit for bit what prepare_rows, matmul_simple,
// finish_parts and rope_append give.
//
// Launches overlap: weights never change, so the copying lane needs no wait and has the ring full
// while the kernel in front still runs. Every other thread waits before its first access to what
// kernels write: who prepares rows before the squares and rows are read, all others before they
// finish. Nothing else is read early, so it does not matter how early the kernel in front lets this
// one start.
#include <algorithm>

#include "common/base/check.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/product.cuh"

namespace foretoken::cuda {
namespace {

constexpr int kConsumers = 8;  // warps, one for each row tile
constexpr int kPreparers = 4;  // warps, stages by turns
constexpr int kWarps = kConsumers + 1 + kPreparers;
constexpr int kThreads = 32 * kWarps;
constexpr int kSharedBytes = 100 << 10;               // two blocks fit on a multiprocessor
constexpr int kTilePitch = fragment::kBlockRows + 4;  // floats; lanes of a store meet no bank twice

// Where a token's row lies and what it is multiplied with; x is null for no token.
struct alignas(16) Row {
  const float* x;
  float scale;
};

struct RingArgs {
  MatmulArgs matmul;
  PrepareArgs prepare;
  FinishArgs finish;
};

template <DType kWeights, int kGroups>
struct Shape {
  static constexpr int kTokens = kGroups * fragment::kTileTokens;
  static constexpr int kWeightBytes = fragment::block_bytes(kElement<kWeights>);
  static constexpr int kStageBytes = kWeightBytes + kGroups * fragment::kGroupBytes;
  static constexpr int kTileBytes = kTokens * kTilePitch * 4;
  static constexpr int kRowBytes = kTokens * static_cast<int>(sizeof(Row));
  static constexpr int kStages = (kSharedBytes - kTileBytes - kRowBytes - 256) / kStageBytes;
  static constexpr int kBytes =
      kStages * kStageBytes + kTileBytes + kRowBytes + (2 * kStages + 1) * 8;
  static_assert(kStages >= 3 && kBytes <= kSharedBytes);
  // The stages are free once all is multiplied.
  static_assert(kStages * kStageBytes >= kWarps * fragment::kBlockRows * 4);
};

// The parts of a block's shared memory.
template <class S>
struct Shared {
  __device__ __forceinline__ explicit Shared(std::byte* at)
      : stages(at),
        tile(reinterpret_cast<float*>(at + S::kStages * S::kStageBytes)),
        rows(reinterpret_cast<Row*>(reinterpret_cast<std::byte*>(tile) + S::kTileBytes)),
        full(reinterpret_cast<std::uint64_t*>(rows + S::kTokens)),
        empty(full + S::kStages),
        ready(empty + S::kStages) {}
  std::byte* stages;
  float* tile;  // [token][kTilePitch]: the sums of the block's part of K
  Row* rows;
  std::uint64_t* full;   // of a stage: its weights and its rows are there
  std::uint64_t* empty;  // of a stage: all consumers have read it
  std::uint64_t* ready;  // `rows` are there
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
template <class S>
__device__ __forceinline__ void wait_until_empty(const Shared<S>& shared, int i) {
  if (i >= S::kStages) barrier_wait(shared.empty + i % S::kStages, (i / S::kStages - 1) % 2);
}

// The copying lane.
template <class S>
__device__ __forceinline__ void feed(const std::byte* weights, int n, const Shared<S>& shared) {
  for (int i = 0; i < n; ++i) {
    const int s = i % S::kStages;
    wait_until_empty(shared, i);
    barrier_expect(shared.full + s, S::kWeightBytes);
    bulk_copy_once(shared.stages + s * S::kStageBytes, weights + std::int64_t{i} * S::kWeightBytes,
                   S::kWeightBytes, shared.full + s);
  }
  let_next_kernel_start();
}

// The same lane, when memory has nothing more to do for its block: the first weights of the blocks
// that start first in the next product. The last blocks of this one fetch them.
__device__ __forceinline__ void fetch_next(const Prefetch& next) {
  if (next.weights == nullptr) return;
  const auto n = static_cast<int>(gridDim.x * gridDim.z);
  for (int i = n - 1 - static_cast<int>(blockIdx.x * gridDim.z + blockIdx.z); i < next.n_blocks;
       i += n) {
    const std::int64_t row_block = i / next.n_parts;
    const std::int64_t k_block =
        fragment::part_begin(next.n_k_blocks, next.n_parts, i % next.n_parts);
    bulk_prefetch(next.weights + row_block * next.row_block_bytes +
                      k_block * (next.row_block_bytes / next.n_k_blocks),
                  next.bytes);
  }
}

// Four values of a row from k on, zero beyond its end.
__device__ __forceinline__ void load_four(const float* x,
                                          int k,
                                          const PrepareArgs& p,
                                          float (&v)[4]) {
  if (p.vectors && k < p.n_in) {
    const Words4 words = load_words(x + k);
    for (int i = 0; i < 4; ++i) v[i] = bits_as<float>(words.w[i]);
  } else {
    for (int i = 0; i < 4; ++i) v[i] = k + i < p.n_in ? x[k + i] : 0.0f;
  }
}

// Where the rows are and their scales, by all preparing warps together.
template <class S>
__device__ __forceinline__ void find_rows(const PrepareArgs& p, int warp, const Shared<S>& shared) {
  constexpr int kMine = S::kTokens / kPreparers;
  const float* x[kMine];
  const float* squares[kMine];
  float scales[kMine];
#pragma unroll
  for (int i = 0; i < kMine; ++i) {
    const int token = i * kPreparers + warp;
    const bool exists = token < p.n_rows;
    const std::int64_t at = exists && p.rows != nullptr ? p.rows[token] : token;
    x[i] = exists ? p.x + at * p.n_in : nullptr;
    squares[i] = exists && p.norm != nullptr
                     ? p.squares + (p.squares_of_tokens ? token : at) * squares_per_row(p.n_in)
                     : nullptr;
  }
  rms_scales(squares, p.n_in, p.norm_eps, scales);
#pragma unroll
  for (int i = 0; i < kMine; ++i)
    if (lane_id() == 0)
      shared.rows[i * kPreparers + warp] = {x[i], p.norm != nullptr ? scales[i] : 1.0f};
  sync_warp();
  if (lane_id() == 0) barrier_arrive(shared.ready);
  barrier_wait(shared.ready, 0);
}

// A preparing warp: every kPreparers-th stage. A lane has four values of K of every second token.
// The rows of tokens that do not exist stay as they are: a column of a product never sees another.
template <class S>
__device__ __forceinline__ void prepare(
    const PrepareArgs& p, int warp, int first_block, int n, const Shared<S>& shared) {
  constexpr int kRounds = S::kTokens / 2;
  constexpr int kGroups = S::kTokens / fragment::kTileTokens;
  wait_for_earlier_kernels();
  find_rows(p, warp, shared);
  const int lane = lane_id(), k = lane % 16 * 4, second = lane / 16;
  const bool is_bf16 = p.input == Input::kBf16;
#pragma unroll 1
  for (int i = warp; i < n; i += kPreparers) {
    const int at = (first_block + i) * fragment::kBlockK + k;
    float gain[4] = {1.0f, 1.0f, 1.0f, 1.0f};
    if (p.norm != nullptr) load_four(p.norm, at, p, gain);
    float x[kRounds][4];
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      const float* row = shared.rows[2 * round + second].x;
      if (row != nullptr) load_four(row, at, p, x[round]);
    }
    wait_until_empty(shared, i);
    const int s = i % S::kStages;
    std::byte* to = shared.stages + s * S::kStageBytes + S::kWeightBytes +
                    fragment::x_offset(kGroups, second, k);
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      const Row row = shared.rows[2 * round + second];
      if (row.x == nullptr) continue;
#pragma unroll
      for (int j = 0; j < 4; j += 2)
        // An even token and an even pair add to the offset what they are worth alone.
        *reinterpret_cast<std::uint32_t*>(to + fragment::x_offset(kGroups, 2 * round, j)) =
            to_halves(x[round][j] * row.scale * gain[j], x[round][j + 1] * row.scale * gain[j + 1],
                      is_bf16);
    }
    sync_warp();
    if (lane == 0) barrier_arrive(shared.full + s);
  }
}

template <DType kWeights, class S>
__device__ __forceinline__ void consume(int n, const Shared<S>& shared) {
  constexpr int kGroups = S::kTokens / fragment::kTileTokens;
  const int warp = warp_id(), lane = lane_id();
  const auto load = [](const std::byte* at) { return load_words(at); };
  float acc[kGroups][4] = {};
#pragma unroll 1
  for (int i = 0; i < n; ++i) {
    const int s = i % S::kStages;
    barrier_wait(shared.full + s, i / S::kStages % 2);
    const std::byte* stage = shared.stages + s * S::kStageBytes;
    multiply_block<kWeights, kGroups>(stage, warp, lane, load,
                                      PackedRows{stage + S::kWeightBytes, lane}, acc);
    sync_warp();
    if (lane == 0) barrier_arrive(shared.empty + s);
  }
#pragma unroll
  for (int group = 0; group < kGroups; ++group)
#pragma unroll
    for (int i = 0; i < fragment::kCValues; ++i)
      shared.tile[(group * 8 + fragment::c_token(lane, i)) * kTilePitch +
                  warp * fragment::kTileRows + fragment::c_row(lane, i)] = acc[group][i];
}

// Tokens are dealt to the blocks of the cluster, then to their warps: a warp has all columns of a
// token, so what needs a whole head or a piece of squares needs no other block. Parts in order.
template <Finish kFinish, class S>
__device__ __forceinline__ void finish_tile(const MatmulArgs& p,
                                            const FinishArgs& f,
                                            const Shared<S>& shared) {
  const int rank = p.n_parts > 1 ? cluster_rank() : 0;
  float* room = reinterpret_cast<float*>(shared.stages) + warp_id() * fragment::kBlockRows;
  for (int token = rank + p.n_parts * warp_id(); token < f.n_tokens; token += p.n_parts * kWarps) {
    const float* sums = shared.tile + token * kTilePitch;
    finish_block<kFinish>(token, static_cast<int>(blockIdx.x), f, room, [&](int i) {
      if (p.n_parts == 1) return sums[i];
      float sum = load_from_rank(sums + i, 0);
      for (int part = 1; part < p.n_parts; ++part) sum += load_from_rank(sums + i, part);
      return sum;
    });
  }
}
#endif

// Grid: row blocks, 1, parts of K; a cluster is all parts of a row block.
template <DType kWeights, int kGroups, Finish kFinish>
__global__ void __launch_bounds__(kThreads, 2) matmul_ring_kernel(RingArgs args) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  using S = Shape<kWeights, kGroups>;
  const MatmulArgs& p = args.matmul;
  const Shared<S> shared(shared_memory());
  const int part = static_cast<int>(blockIdx.z), warp = warp_id();
  const std::int64_t begin = fragment::part_begin(p.n_k_blocks, p.n_parts, part);
  const int n = static_cast<int>(fragment::part_begin(p.n_k_blocks, p.n_parts, part + 1) - begin);
  if (threadIdx.x == 0) {
    for (int s = 0; s < S::kStages; ++s) {
      barrier_init(shared.full + s, 2);  // who copies and who prepares
      barrier_init(shared.empty + s, kConsumers);
    }
    barrier_init(shared.ready, kPreparers);
    barrier_fence();
  }
  sync_block();
  if (warp < kConsumers) {
    consume<kWeights>(n, shared);
  } else if (warp > kConsumers) {
    prepare(args.prepare, warp - kConsumers - 1, static_cast<int>(begin), n, shared);
  } else {
    const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * p.n_k_blocks + begin;
    if (lane_id() == 0) {
      feed(p.weights + first * S::kWeightBytes, n, shared);
      fetch_next(p.next);
    }
    sync_warp();
  }
  wait_for_earlier_kernels();
  if (p.n_parts > 1)
    sync_cluster();
  else
    sync_block();
  finish_tile<kFinish>(p, args.finish, shared);
  if (p.n_parts > 1) sync_cluster();  // no block leaves while its sums are read
#endif
}

template <DType kWeights, int kGroups>
void start(const Launch& launch_in, const RingArgs& args) {
  Launch l = launch_in;
  l.shared_bytes = Shape<kWeights, kGroups>::kBytes;
  const char* name = "matmul_ring";
  switch (args.finish.finish) {
    case Finish::kStore:
      return launch(l, name, matmul_ring_kernel<kWeights, kGroups, Finish::kStore>, args);
    case Finish::kAdd:
      return launch(l, name, matmul_ring_kernel<kWeights, kGroups, Finish::kAdd>, args);
    case Finish::kSwiglu:
      return launch(l, name, matmul_ring_kernel<kWeights, kGroups, Finish::kSwiglu>, args);
    case Finish::kRope:
      return launch(l, name, matmul_ring_kernel<kWeights, kGroups, Finish::kRope>, args);
  }
}

template <DType kWeights>
void start(const Launch& l, const RingArgs& args) {
  if (args.matmul.n_groups == 1)
    start<kWeights, 1>(l, args);
  else
    start<kWeights, 2>(l, args);
}

}  // namespace

Prefetch plan_prefetch(const Linear& next, int n_multiprocessors) {
  if (next.dtype == DType::kF32) return {};
  const std::int64_t block = fragment::block_bytes(static_cast<int>(size_bytes(next.dtype)));
  Prefetch plan{
      .weights = next.weights.as<std::byte>(),
      .n_k_blocks = static_cast<std::int32_t>(fragment::blocks_of(next.n_in, fragment::kBlockK))};
  plan.row_block_bytes = plan.n_k_blocks * block;
  const auto row_blocks =
      static_cast<std::int64_t>(next.weights.size_bytes()) / plan.row_block_bytes;
  plan.n_parts = fragment::k_parts(row_blocks, plan.n_k_blocks);
  const std::int64_t first =
      std::min<std::int64_t>(row_blocks, 2 * n_multiprocessors / plan.n_parts);
  plan.n_blocks = static_cast<std::int32_t>(first * plan.n_parts);
  const std::int64_t shortest = plan.n_k_blocks / plan.n_parts;  // blocks of weights in a part
  const std::int64_t each = std::min(shortest, kPrefetchBytes / plan.n_blocks / block);
  plan.bytes = static_cast<std::int32_t>(each * block);
  return each > 0 ? plan : Prefetch{};
}

void matmul_ring(const Launch& launch_in,
                 const MatmulArgs& matmul,
                 const PrepareArgs& prepare,
                 const FinishArgs& finish) {
  FORETOKEN_CHECK(prepare.n_rows <= kRingTokens);
  FORETOKEN_CHECK(prepare.norm == nullptr || prepare.squares != nullptr);
  const RingArgs args{matmul, prepare, finish};
  Launch l = launch_in;
  l.x = static_cast<unsigned>(matmul.n_row_blocks);
  l.z = static_cast<unsigned>(matmul.n_parts);
  l.cluster = matmul.n_parts;
  l.n_threads = kThreads;
  if (matmul.dtype == DType::kBf16) start<DType::kBf16>(l, args);
  if (matmul.dtype == DType::kF16) start<DType::kF16>(l, args);
  if (matmul.dtype == DType::kI8) start<DType::kI8>(l, args);
  if (matmul.dtype == DType::kF8E4M3) start<DType::kF8E4M3>(l, args);
}

}  // namespace foretoken::cuda
