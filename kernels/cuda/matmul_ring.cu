// The fast product for few tokens (sm_90), one kernel from the rows as they lie in memory to what
// becomes of the sums. A ring in shared memory: the copy engine fills it with weights, four warps
// with rows (normalised, rounded, as B fragments), eight warps multiply. Parts of K are the blocks
// of a cluster and are added in order through its shared memory; then scale, bias, residual and its
// squares, SwiGLU, or rotation and append. Bit for bit what prepare_rows, matmul_simple,
// finish_parts and rope_append give.
//
// Launches overlap: weights, their scales and bias never change, so the copying warp needs no wait
// and has the ring full while the kernel in front still runs. Every other thread waits before its
// first access to what kernels write: who prepares rows before the squares and rows are read, all
// others before they finish. Nothing else is read early, so it does not matter how early the kernel
// in front lets this one start.
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
  static constexpr int kScaleBytes = (kTokens + 2 * fragment::kBlockRows) * 4;
  static constexpr int kStages = (kSharedBytes - kTileBytes - kScaleBytes - 256) / kStageBytes;
  static constexpr int kBytes =
      kStages * kStageBytes + kTileBytes + kScaleBytes + (2 * kStages + 2) * 8;
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
        row_scales(tile + S::kTileBytes / 4),
        out_scales(row_scales + S::kTokens),
        out_bias(out_scales + fragment::kBlockRows),
        full(reinterpret_cast<std::uint64_t*>(out_bias + fragment::kBlockRows)),
        empty(full + S::kStages),
        ready(empty + S::kStages),
        scaled(ready + 1) {}
  std::byte* stages;
  float* tile;        // [token][kTilePitch]: the sums of the block's part of K
  float* row_scales;  // what a token's row is multiplied with
  float* out_scales;  // of the row block, as in FinishArgs
  float* out_bias;
  std::uint64_t* full;    // of a stage: its weights and its rows are there
  std::uint64_t* empty;   // of a stage: all consumers have read it
  std::uint64_t* ready;   // `row_scales` are there
  std::uint64_t* scaled;  // `out_scales` and `out_bias` are there
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
template <class S>
__device__ __forceinline__ void wait_until_empty(const Shared<S>& shared, int i) {
  if (i >= S::kStages) barrier_wait(shared.empty + i % S::kStages, (i / S::kStages - 1) % 2);
}

// The copying lane: first what the end needs of the block's rows.
template <class S>
__device__ __forceinline__ void feed_scales(const FinishArgs& f, const Shared<S>& shared) {
  constexpr int kBytes = fragment::kBlockRows * 4;
  const std::int64_t first = std::int64_t{blockIdx.x} * fragment::kBlockRows;
  barrier_expect(shared.scaled,
                 (f.scales != nullptr ? kBytes : 0) + (f.bias != nullptr ? kBytes : 0));
  if (f.scales != nullptr)
    bulk_copy_once(shared.out_scales, f.scales + first, kBytes, shared.scaled);
  if (f.bias != nullptr) bulk_copy_once(shared.out_bias, f.bias + first, kBytes, shared.scaled);
}

// Then the weights.
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

// Scales of the rows, by all preparing warps together: in rms_scales' order, everything asked for
// before the first is added. A token that does not exist has those of the first.
template <class S>
__device__ __forceinline__ void find_scales(const PrepareArgs& p,
                                            int warp,
                                            const Shared<S>& shared) {
  constexpr int kMine = S::kTokens / kPreparers;
  float scales[kMine] = {};
  if (p.norm != nullptr) {
    const std::int32_t n = squares_per_row(p.n_in);
    const float* squares[kMine];
    float sums[kMine] = {};
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
      const int token = i * kPreparers + warp;
      const std::int64_t there = token < p.n_rows ? token : 0;
      const std::int64_t at = p.rows != nullptr && !p.squares_of_tokens ? p.rows[there] : there;
      squares[i] = p.squares + at * n;
    }
#pragma unroll 2
    for (int piece = lane_id(); piece < n; piece += 32)
#pragma unroll
      for (int i = 0; i < kMine; ++i) sums[i] += squares[i][piece];
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
#pragma unroll
      for (int i = 0; i < kMine; ++i) sums[i] += shuffle_xor(sums[i], step);
#pragma unroll
    for (int i = 0; i < kMine; ++i) scales[i] = sums[i];
  }
  // A lane a token: roots and divisions are long.
  float sum = scales[0];
#pragma unroll
  for (int i = 1; i < kMine; ++i) sum = lane_id() == i ? scales[i] : sum;
  if (lane_id() < kMine)
    shared.row_scales[lane_id() * kPreparers + warp] =
        p.norm != nullptr ? rms_scale(sum, p.n_in, p.norm_eps) : 1.0f;
  sync_warp();
  if (lane_id() == 0) barrier_arrive(shared.ready);
  barrier_wait(shared.ready, 0);
}

// A preparing warp's part of a stage on its way: a lane has four values of K of every second token.
// Rows are worked on two rounds at a time without a branch in between: one after another, each
// would wait for its own arithmetic.
template <class S>
struct RowsOfStage {
  static constexpr int kRounds = S::kTokens / 2;
  static constexpr int kTogether = 2;
  float gain[4];
  float x[kRounds][4];

  static __device__ __forceinline__ int token_of(int round) { return 2 * round + lane_id() / 16; }
  __device__ __forceinline__ void load(const PrepareArgs& p, int k_block) {
    const int at = k_block * fragment::kBlockK + lane_id() % 16 * 4;
    if (p.vectors && at < p.n_in)
      load_with(p, [at](const float* from, float(&v)[4]) {
        const Words4 words = load_words(from + at);
        for (int i = 0; i < 4; ++i) v[i] = bits_as<float>(words.w[i]);
      });
    else
      load_with(p, [at, &p](const float* from, float(&v)[4]) {
        for (int i = 0; i < 4; ++i) v[i] = at + i < p.n_in ? from[at + i] : 0.0f;
      });
  }
  template <class Load>
  __device__ __forceinline__ void load_with(const PrepareArgs& p, const Load& load_four) {
    const std::int32_t n_in =
        not_hoisted(p.n_in);  // addresses of all rows would fill the registers
#pragma unroll
    for (int i = 0; i < 4; ++i) gain[i] = 1.0f;
    if (p.norm != nullptr) load_four(p.norm, gain);
    if (p.rows != nullptr) {
#pragma unroll
      for (int round = 0; round < kRounds; ++round)
        if (token_of(round) < p.n_rows)
          load_four(p.x + std::int64_t{p.rows[token_of(round)]} * n_in, x[round]);
      return;
    }
    const float* from = p.x + std::int64_t{token_of(0)} * n_in;
#pragma unroll
    for (int round = 0; round < kRounds; ++round, from += 2 * n_in)
      if (token_of(round) < p.n_rows) load_four(from, x[round]);
  }
  // As B fragments. The rows of tokens that do not exist stay as they are: a column of a product
  // never sees another.
  template <bool kBf16>
  __device__ __forceinline__ void put(const PrepareArgs& p,
                                      const float* row_scales,
                                      std::byte* to) const {
    constexpr int kGroups = S::kTokens / fragment::kTileTokens;
    const int second = lane_id() / 16;
    to += fragment::x_offset(kGroups, second, lane_id() % 16 * 4);
#pragma unroll
    for (int first = 0; first < kRounds; first += kTogether) {
      if (2 * first >= p.n_rows) break;
      float y[kTogether][4];
      float most = 0;
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const float scale = row_scales[2 * (first + i) + second];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          y[i][j] = x[first + i][j] * scale * gain[j];
          most = fmaxf(most, fabsf(y[i][j]));
        }
      }
      if (!kBf16 && most > 65504.0f)
#pragma unroll
        for (int i = 0; i < kTogether; ++i)
#pragma unroll
          for (int j = 0; j < 4; ++j) y[i][j] = limited_to_half(y[i][j]);
#pragma unroll
      for (int i = 0; i < kTogether; ++i)
#pragma unroll
        for (int j = 0; j < 4; j += 2)
          // An even token and an even pair add to the offset what they are worth alone.
          if (token_of(first + i) < p.n_rows)
            *reinterpret_cast<std::uint32_t*>(to +
                                              fragment::x_offset(kGroups, 2 * (first + i), j)) =
                round_pair(y[i][j], y[i][j + 1], kBf16);
    }
  }
};

// A preparing warp: every kPreparers-th stage, the next one's rows loaded ahead.
template <bool kBf16, class S>
__device__ __forceinline__ void prepare(
    const PrepareArgs& p, int warp, int first_block, int n, const Shared<S>& shared) {
  wait_for_earlier_kernels();
  RowsOfStage<S> rows;
  if (warp < n) rows.load(p, first_block + warp);
  find_scales(p, warp, shared);
#pragma unroll 1
  for (int i = warp; i < n; i += kPreparers) {
    wait_until_empty(shared, i);
    const int s = i % S::kStages;
    rows.template put<kBf16>(p, shared.row_scales,
                             shared.stages + s * S::kStageBytes + S::kWeightBytes);
    sync_warp();
    if (lane_id() == 0) barrier_arrive(shared.full + s);
    if (i + kPreparers < n) rows.load(p, first_block + i + kPreparers);
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
// token, so what needs a whole head or a piece of squares needs no other block. Parts in order, and
// as many as there are registers for are asked for before the first is added.
template <Finish kFinish, class S>
__device__ __forceinline__ void finish_tile(int n_parts,
                                            const FinishArgs& f,
                                            const Shared<S>& shared) {
  constexpr int kMostParts = 8, kTogether = kFinish == Finish::kRope ? 4 : 8;
  const int rank = cluster_rank(), row_block = static_cast<int>(blockIdx.x);
  float* room = reinterpret_cast<float*>(shared.stages) + warp_id() * fragment::kBlockRows;
  float old[kLaneSums] = {};
  int token = rank + n_parts * warp_id();
  if (kFinish == Finish::kAdd && token < f.n_tokens) load_old(token, row_block, f, old);
  barrier_wait(shared.scaled, 0);
  if (n_parts > 1)
    sync_cluster();
  else
    sync_block();
#pragma unroll 1
  for (; token < f.n_tokens; token += n_parts * kWarps) {
    float y[kLaneSums] = {};
#pragma unroll
    for (int first = 0; first < kMostParts; first += kTogether) {
      if (first >= n_parts) break;
      float part[kTogether][kLaneSums];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        if (first + i >= n_parts) break;
        const RankFloats sums(shared.tile + token * kTilePitch, first + i);
#pragma unroll
        for (int j = 0; j < kLaneSums; ++j) part[i][j] = sums.load(lane_row<kFinish>(j));
      }
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        if (first + i >= n_parts) break;
#pragma unroll
        for (int j = 0; j < kLaneSums; ++j) y[j] = first + i == 0 ? part[i][j] : y[j] + part[i][j];
      }
    }
#pragma unroll
    for (int i = 0; i < kLaneSums; ++i) {
      if (f.scales != nullptr) y[i] *= shared.out_scales[lane_row<kFinish>(i)];
      if (f.bias != nullptr) y[i] += shared.out_bias[lane_row<kFinish>(i)];
    }
    finish_block<kFinish>(token, row_block, f, room, y, old);
    if (kFinish == Finish::kAdd && token + n_parts * kWarps < f.n_tokens)
      load_old(token + n_parts * kWarps, row_block, f, old);
  }
  if (n_parts > 1) leave_cluster();  // no block leaves while its sums are read
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
    barrier_init(shared.scaled, 1);
    barrier_fence();
  }
  sync_block();
  if (warp < kConsumers) {
    consume<kWeights>(n, shared);
  } else if (warp > kConsumers) {
    prepare<kWeights == DType::kBf16>(args.prepare, warp - kConsumers - 1, static_cast<int>(begin),
                                      n, shared);
  } else {
    const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * p.n_k_blocks + begin;
    if (lane_id() == 0) {
      feed_scales(args.finish, shared);
      feed(p.weights + first * S::kWeightBytes, n, shared);
      fetch_next(p.next);
    }
    sync_warp();
  }
  wait_for_earlier_kernels();
  finish_tile<kFinish>(p.n_parts, args.finish, shared);
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
