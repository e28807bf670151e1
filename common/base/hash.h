// Bits from bits: the finaliser of SplitMix64, the one mixing function of the project, and FNV-1a,
// its one hash of bytes. Part of the protocol (common/spec/prefix_hash.h) and of fingerprints, so
// neither ever changes (std::hash may). Pure; no cryptography.
#pragma once

#include <cstdint>
#include <string_view>

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

constexpr std::uint64_t fnv1a(std::string_view bytes) {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash;
}

}  // namespace foretoken
