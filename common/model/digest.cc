#include "common/model/digest.h"

#include <array>
#include <bit>
#include <cstring>

#include "common/base/hash.h"

namespace foretoken {
namespace {

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
  for (std::size_t i = 0; i < kLanes; ++i) lanes[i] = mix64(seed + (i + 1) * kGoldenRatio64);
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8 * kLanes; at += 8 * kLanes, left -= 8 * kLanes)
    for (std::size_t i = 0; i < kLanes; ++i)
      lanes[i] = std::rotl((lanes[i] ^ load64(at + 8 * i)) * kGoldenRatio64, 29);
  std::uint64_t state = mix64(static_cast<std::uint64_t>(bytes.size()) ^ seed);
  for (std::uint64_t lane : lanes) state = mix64((state ^ lane) * kGoldenRatio64);
  for (; left >= 8; at += 8, left -= 8) state = mix64((state ^ load64(at)) * kGoldenRatio64);
  if (left > 0) {
    std::uint64_t tail = 0;
    std::memcpy(&tail, at, left);
    state = mix64((state ^ tail) * kGoldenRatio64);
  }
  return state;
}

Digest& Digest::add(std::uint64_t value) {
  state_ = mix64((state_ ^ value) * kGoldenRatio64);
  return *this;
}

Digest& Digest::add(std::string_view text) {
  return add(digest_bytes(std::as_bytes(std::span(text)), text.size()));
}

Digest& Digest::add(double value) { return add(std::bit_cast<std::uint64_t>(value)); }

}  // namespace foretoken
