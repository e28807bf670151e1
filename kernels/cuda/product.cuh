// The arithmetic that all products share: a warp's 16 rows times 64 values of K, and what becomes
// of a finished sum. One order for every number of tokens: K from its beginning, 16 at a time.
#pragma once

#include "kernels/cuda/rope.cuh"
#include "kernels/cuda/squares.cuh"

namespace foretoken::cuda {

template <DType kWeights>
inline constexpr int kElement = kWeights == DType::kBf16 || kWeights == DType::kF16 ? 2 : 1;

// A fragments of two steps of K, from 16 or 32 bytes of a lane.
template <DType kWeights, class Load>
__device__ __forceinline__ void load_a(const std::byte* block,
                                       int row_tile,
                                       int half,
                                       int lane,
                                       const Load& load,
                                       std::uint32_t (&a)[2][4]) {
  constexpr int kBytes = kElement<kWeights>;
  if constexpr (kBytes == 2) {
    for (int step = 0; step < 2; ++step) {
      const Words4 w = load(block + fragment::lane_offset(2, row_tile, 2 * half + step, lane));
      for (int i = 0; i < 4; ++i) a[step][i] = w.w[i];
    }
  } else {
    const Words4 w = load(block + fragment::lane_offset(1, row_tile, half, lane));
    for (int step = 0; step < 2; ++step)
      for (int i = 0; i < 2; ++i) {
        const std::uint32_t codes = w.w[2 * step + i];
        if constexpr (kWeights == DType::kI8)
          i8_to_halves(codes, a[step][2 * i], a[step][2 * i + 1]);
        else
          e4m3_to_halves(codes, a[step][2 * i], a[step][2 * i + 1]);
      }
  }
}

// acc += block rows of `row_tile` times kGroups groups of 8 tokens. load_b(group, half): this
// lane's 16 bytes of the rows.
template <DType kWeights, int kGroups, class Load, class LoadB>
__device__ __forceinline__ void multiply_block(const std::byte* block,
                                               int row_tile,
                                               int lane,
                                               const Load& load,
                                               const LoadB& load_b,
                                               float (&acc)[kGroups][4]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    std::uint32_t a[2][4];
    load_a<kWeights>(block, row_tile, half, lane, load, a);
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      const Words4 b = load_b(group, half);
      if constexpr (kWeights == DType::kBf16) {
        mma_bf16(acc[group], a[0], b.w[0], b.w[1]);
        mma_bf16(acc[group], a[1], b.w[2], b.w[3]);
      } else {
        mma_f16(acc[group], a[0], b.w[0], b.w[1]);
        mma_f16(acc[group], a[1], b.w[2], b.w[3]);
      }
    }
  }
}

// Rows as prepare_rows leaves them: the groups' part of a K block.
struct PackedRows {
  const std::byte* x;
  int lane;
  __device__ __forceinline__ Words4 operator()(int group, int half) const {
    return load_words(x + group * fragment::kGroupBytes + half * fragment::kWarpBytes +
                      lane * fragment::kLaneBytes);
  }
};

__device__ __forceinline__ float silu_times(float gate, float up) {
  return gate / (1.0f + expf(-gate)) * up;
}

// A warp finishes one row block of one token: a lane has four of its sums, here which. SwiGLU: two
// gates, then what belongs to them.
inline constexpr int kLaneSums = 4;
template <Finish kFinish>
__device__ __forceinline__ int lane_row(int i) {
  if constexpr (kFinish != Finish::kSwiglu) return 32 * i + lane_id();
  return static_cast<int>(fragment::gate_row(32 * (i % 2) + lane_id())) + i / 2 * 8;
}
template <Finish kFinish>
inline constexpr int kBlockColumns = fragment::kBlockRows / (kFinish == Finish::kSwiglu ? 2 : 1);

// What lies where kAdd adds, of a lane's columns.
__device__ __forceinline__ void load_old(std::int32_t token,
                                         std::int32_t row_block,
                                         const FinishArgs& f,
                                         float (&old)[kLaneSums]) {
  const std::int32_t first = row_block * fragment::kBlockRows;
  const float* out = f.out + std::int64_t{token} * f.n_columns + first;
#pragma unroll
  for (int i = 0; i < kLaneSums; ++i) {
    const int column = 32 * i + lane_id();
    old[i] = first + column < f.n_columns ? out[column] : 0.0f;
  }
}

// y: scaled sums of lane_row(0), ... room: kBlockRows floats of the warp's own, for kRope. old: for
// kAdd.
template <Finish kFinish>
__device__ __forceinline__ void finish_block(std::int32_t token,
                                             std::int32_t row_block,
                                             const FinishArgs& f,
                                             float* room,
                                             const float (&y)[kLaneSums],
                                             const float (&old)[kLaneSums]) {
  constexpr int kColumns = kBlockColumns<kFinish>;
  const std::int32_t first = row_block * kColumns;
  float* out = f.out + std::int64_t{token} * f.n_columns + first;
  float written[kColumns / 32];
#pragma unroll
  for (int i = 0; i < kColumns / 32; ++i) {
    const int column = 32 * i + lane_id();
    written[i] = y[i];
    if constexpr (kFinish == Finish::kSwiglu) written[i] = silu_times(y[i], y[i + 2]);
    if constexpr (kFinish == Finish::kAdd) written[i] = old[i] + y[i];
    if (first + column >= f.n_columns)
      written[i] = 0;
    else if constexpr (kFinish == Finish::kRope)
      room[column] = written[i];
    else
      out[column] = written[i];
  }
  if constexpr (kFinish == Finish::kAdd) {
    const float squares = squares_of_piece([&](int i) { return written[(i - lane_id()) / 32]; });
    if (f.squares != nullptr && lane_id() == 0)
      f.squares[token * squares_per_row(f.n_columns) + row_block] = squares;
  }
  if constexpr (kFinish == Finish::kRope) {
    sync_warp();
    const int head_dim = f.rope.geometry.head_dim;
    for (int i = 0; i < kColumns && first + i < f.n_columns; i += head_dim)
      finish_head(f.rope, room + i, (first + i) / head_dim, token);
    sync_warp();
  }
}

}  // namespace foretoken::cuda
