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

__device__ __forceinline__ float scaled(float sum, std::int64_t packed_row, const FinishArgs& f) {
  const float y = f.scales != nullptr ? sum * f.scales[packed_row] : sum;
  return f.bias != nullptr ? y + f.bias[packed_row] : y;
}

__device__ __forceinline__ float silu_times(float gate, float up) {
  return gate / (1.0f + expf(-gate)) * up;
}

// A warp finishes one row block of one token. sum(i): the whole sum of the block's packed row i.
// room: kBlockRows floats of the warp's own, for kRope.
template <Finish kFinish, class Sum>
__device__ __forceinline__ void finish_block(
    std::int32_t token, std::int32_t row_block, const FinishArgs& f, float* room, const Sum& sum) {
  constexpr int kColumns = fragment::kBlockRows / (kFinish == Finish::kSwiglu ? 2 : 1);
  const std::int32_t first = row_block * kColumns;
  const std::int64_t first_row = std::int64_t{row_block} * fragment::kBlockRows;
  float* out = f.out + std::int64_t{token} * f.n_columns + first;
  const auto finished = [&](int i) { return scaled(sum(i), first_row + i, f); };
  const auto column = [&](int i) {  // gives what it writes
    if (first + i >= f.n_columns) return 0.0f;
    if constexpr (kFinish == Finish::kSwiglu) {
      const int gate = static_cast<int>(fragment::gate_row(i));
      return out[i] = silu_times(finished(gate), finished(gate + 8));
    } else if constexpr (kFinish == Finish::kRope) {
      return room[i] = finished(i);
    } else {
      const float y = finished(i);
      return out[i] = kFinish == Finish::kAdd ? out[i] + y : y;
    }
  };
  if constexpr (kFinish == Finish::kAdd) {
    const float squares = squares_of_piece(column);
    if (f.squares != nullptr && lane_id() == 0)
      f.squares[token * squares_per_row(f.n_columns) + row_block] = squares;
  } else {
#pragma unroll
    for (int i = 0; i < kColumns; i += 32) column(i + lane_id());
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
