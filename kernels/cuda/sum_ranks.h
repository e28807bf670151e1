// Sums over ranks on the device, for rank_sums.cc: every rank pushes its part into the memory of
// all others and adds what arrives in rank order, so that all have the same bits; or adds what
// another library has gathered. Plain C++; every pointer is a device address.
#pragma once

#include <cstdint>

#include "kernels/device/runtime.h"

namespace foretoken::cuda {

inline constexpr int kMostPeers = 8;
inline constexpr std::int64_t kOneShotBytes = 512 << 10;  // of floats, of one launch
inline constexpr std::int64_t kOneShotPackets = (kOneShotBytes / 4 + 2) / 3;
// What a rank keeps for the others to write to: two halves by turns, in each a place for every
// rank.
constexpr std::int64_t inbox_bytes(int n_ranks) { return 2 * n_ranks * kOneShotPackets * 16; }

struct Packet;

// Two turns never meet in one half: a rank begins turn t + 2 after its own turn t + 1, for which it
// needed a part of every other rank, which that one sent after it was through with turn t.
struct SumRanksArgs {
  const float* part = nullptr;  // [n]
  float* residual = nullptr;    // [n]: += the sum
  std::int64_t n = 0;           // at most kOneShotBytes / 4
  int rank = 0;
  int n_ranks = 1;
  Packet* const* inboxes = nullptr;  // [n_ranks], as this device sees them
  // How many sums this rank has taken; on the device, so that recordings may repeat it.
  std::uint32_t* turn = nullptr;
  std::uint32_t* n_done = nullptr;  // blocks through with this one
};
void sum_ranks(const Launch& launch, const SumRanksArgs& args);

// residual[i] += parts[0][i] + parts[1][i] + ...; parts: [n_ranks][n]
struct SumGatheredArgs {
  const float* parts = nullptr;
  float* residual = nullptr;
  std::int64_t n = 0;
  int n_ranks = 1;
};
void sum_gathered(const Launch& launch, const SumGatheredArgs& args);

}  // namespace foretoken::cuda
