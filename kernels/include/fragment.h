// How a matrix unit's operands lie in memory and in the registers of a warp: packed weights, packed
// activations, fragment maps of m16n8k16, runs of the KV cache and the cut of K. Constexpr index
// arithmetic for packers, kernels and the emulator alike; uses no device and holds no data.
#pragma once

#include <cstdint>

#include "kernels/include/numerics.h"

namespace foretoken::fragment {

// --- Fragments of one m16n8k16 product, by lane of the warp
//
// Weights are the 16-row operand A, tokens the 8 columns of B, so a token never shares an
// accumulator with another and its bits do not depend on how many there are.

inline constexpr int kTileRows = 16;
inline constexpr int kTileTokens = 8;
inline constexpr int kStepK = 16;
inline constexpr int kAValues = 8;  // of a lane
inline constexpr int kBValues = 4;
inline constexpr int kCValues = 4;

FORETOKEN_HD constexpr int a_row(int lane, int i) { return lane / 4 + (i / 2 % 2) * 8; }
FORETOKEN_HD constexpr int a_k(int lane, int i) { return lane % 4 * 2 + i % 2 + i / 4 * 8; }
FORETOKEN_HD constexpr int b_k(int lane, int i) { return lane % 4 * 2 + i % 2 + i / 2 * 8; }
FORETOKEN_HD constexpr int b_token(int lane) { return lane / 4; }
FORETOKEN_HD constexpr int c_row(int lane, int i) { return lane / 4 + i / 2 * 8; }
FORETOKEN_HD constexpr int c_token(int lane, int i) { return lane % 4 * 2 + i % 2; }
// Inverses: who holds (row, k) of A and (k, token) of B.
FORETOKEN_HD constexpr int a_lane(int row, int k) { return row % 8 * 4 + k % 8 / 2; }
FORETOKEN_HD constexpr int a_value(int row, int k) { return k % 2 + row / 8 * 2 + k / 8 * 4; }
FORETOKEN_HD constexpr int b_lane(int k, int token) { return token * 4 + k % 8 / 2; }
FORETOKEN_HD constexpr int b_value(int k) { return k % 2 + k / 8 * 2; }

// --- Packed weights: blocks of 128 rows x 64 K, one contiguous run each, K blocks of a row block
// behind one another. Inside a block: row tiles, K tiles, lanes, 16 bytes. A lane's 16 bytes are
// one fragment of 2-byte weights or two of 1-byte weights.

inline constexpr int kBlockRows = 128;
inline constexpr int kBlockK = 64;
inline constexpr int kLaneBytes = 16;
inline constexpr int kWarpBytes = 32 * kLaneBytes;

FORETOKEN_HD constexpr std::int64_t blocks_of(std::int64_t n, int block) {
  return (n + block - 1) / block;
}
FORETOKEN_HD constexpr int block_bytes(int element) { return kBlockRows * kBlockK * element; }
FORETOKEN_HD constexpr int k_tiles(int element) { return 2 * element; }

// Bytes from the start of a block to the 16 bytes of `lane` in (row tile, K tile).
FORETOKEN_HD constexpr int lane_offset(int element, int row_tile, int k_tile, int lane) {
  return ((row_tile * k_tiles(element) + k_tile) * 32 + lane) * kLaneBytes;
}

// Bytes from the start of the matrix to element (row, k); element is 1 or 2 bytes.
FORETOKEN_HD constexpr std::int64_t weight_offset(int element,
                                                  std::int64_t n_k_blocks,
                                                  std::int64_t row,
                                                  std::int64_t k) {
  const std::int64_t block = row / kBlockRows * n_k_blocks + k / kBlockK;
  const int r = static_cast<int>(row % kTileRows), step = static_cast<int>(k % kBlockK) / kStepK;
  const int kk = static_cast<int>(k % kStepK);
  const int steps_per_tile = 2 / element;
  const int value = step % steps_per_tile * kAValues + a_value(r, kk);
  return block * block_bytes(element) +
         lane_offset(element, static_cast<int>(row % kBlockRows) / kTileRows, step / steps_per_tile,
                     a_lane(r, kk)) +
         value * element;
}

// Gate and up rows by turns of eight, so that a tile holds both halves of eight outputs and a lane
// both halves of each of its own.
FORETOKEN_HD constexpr bool is_up(std::int64_t packed_row) { return packed_row % 16 >= 8; }
FORETOKEN_HD constexpr std::int64_t pair_of(std::int64_t packed_row) {
  return packed_row / 16 * 8 + packed_row % 8;
}
FORETOKEN_HD constexpr std::int64_t gate_row(std::int64_t pair) { return pair / 8 * 16 + pair % 8; }

// --- Packed activations, 16 bits each: [K block][group of 8 tokens][half of 32 K][lane][16 bytes],
// the B fragments of two steps in a lane's 16 bytes.

inline constexpr int kGroupBytes = kTileTokens * kBlockK * 2;

FORETOKEN_HD constexpr std::int64_t x_offset(std::int64_t n_groups,
                                             std::int64_t token,
                                             std::int64_t k) {
  const int kk = static_cast<int>(k % kStepK), step = static_cast<int>(k % kBlockK) / kStepK;
  const std::int64_t group = k / kBlockK * n_groups + token / kTileTokens;
  return group * kGroupBytes + step / 2 * kWarpBytes +
         b_lane(kk, static_cast<int>(token % kTileTokens)) * kLaneBytes + step % 2 * 8 +
         b_value(kk) * 2;
}

// --- The cut of K: how many parts are summed apart and then added in order. A function of the
// matrix alone, so that a row's bits depend on nothing else.

FORETOKEN_HD constexpr int k_parts(std::int64_t n_row_blocks, std::int64_t n_k_blocks) {
  int parts = 1;
  while (parts < 8 && n_row_blocks * parts < 120 && n_k_blocks >= 8 * parts) parts *= 2;
  return parts;
}
FORETOKEN_HD constexpr std::int64_t part_begin(std::int64_t n_k_blocks, int n_parts, int part) {
  return n_k_blocks * part / n_parts;
}

// --- Runs of positions whose partial softmax is computed apart and then merged in order: 64 tokens
// below 1024, 256 below 8192, 1024 above.

FORETOKEN_HD constexpr std::int32_t run_begin(std::int32_t run) {
  if (run < 16) return run * 64;
  if (run < 16 + 28) return 1024 + (run - 16) * 256;
  return 8192 + (run - 44) * 1024;
}
// Runs that hold positions below n.
FORETOKEN_HD constexpr std::int32_t runs_of(std::int32_t n) {
  if (n <= 1024) return (n + 63) / 64;
  if (n <= 8192) return 16 + (n - 1024 + 255) / 256;
  return 44 + (n - 8192 + 1023) / 1024;
}

}  // namespace foretoken::fragment
