// Bits from bits: the finaliser of SplitMix64, the one mixing function of the project. Part of the
// protocol (common/spec/prefix_hash.h) and of fingerprints, so it never changes. Pure; no
// cryptography.
#pragma once

#include <cstdint>

namespace foretoken {

inline constexpr std::uint64_t kGoldenRatio64 = 0x9E3779B97F4A7C15ull;  // 2^64 / phi, odd

// A bijection in which every bit of the input reaches every bit of the output.
constexpr std::uint64_t mix64(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ull;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebull;
  x ^= x >> 31;
  return x;
}

}  // namespace foretoken
