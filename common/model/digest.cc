#include "common/model/digest.h"

#include <array>
#include <bit>
#include <cstring>

namespace foretoken {
namespace {

constexpr std::uint64_t kPrime = 0x9E3779B97F4A7C15ull;  // 2^64 / golden ratio, odd

// Every input bit reaches every output bit (the finaliser of SplitMix64).
constexpr std::uint64_t scramble(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

std::uint64_t load64(const std::byte* from) {
  std::uint64_t word;
  std::memcpy(&word, from, sizeof word);
  return word;
}

constexpr std::size_t kLanes = 8;

}  // namespace

// Eight chains run side by side, so that the multiplier's latency is hidden and memory sets the
// pace. Each step is a bijection of its lane: a single changed word always changes the lane.
std::uint64_t digest_bytes(std::span<const std::byte> bytes, std::uint64_t seed) {
  std::array<std::uint64_t, kLanes> lanes;
  for (std::size_t i = 0; i < kLanes; ++i) lanes[i] = scramble(seed + (i + 1) * kPrime);
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8 * kLanes; at += 8 * kLanes, left -= 8 * kLanes)
    for (std::size_t i = 0; i < kLanes; ++i)
      lanes[i] = std::rotl((lanes[i] ^ load64(at + 8 * i)) * kPrime, 29);
  std::uint64_t state = scramble(static_cast<std::uint64_t>(bytes.size()) ^ seed);
  for (std::uint64_t lane : lanes) state = scramble((state ^ lane) * kPrime);
  for (; left >= 8; at += 8, left -= 8) state = scramble((state ^ load64(at)) * kPrime);
  if (left > 0) {
    std::uint64_t tail = 0;
    std::memcpy(&tail, at, left);
    state = scramble((state ^ tail) * kPrime);
  }
  return state;
}

Digest& Digest::add(std::uint64_t value) {
  state_ = scramble((state_ ^ value) * kPrime);
  return *this;
}

Digest& Digest::add(std::string_view text) {
  return add(digest_bytes(std::as_bytes(std::span(text)), text.size()));
}

Digest& Digest::add(double value) { return add(std::bit_cast<std::uint64_t>(value)); }

}  // namespace foretoken
