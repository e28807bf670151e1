// A 64-bit hash with the same value on every machine, for fingerprints and tables. Not cryptographic: a fingerprint
// guards against mistakes, not against a forger.
#pragma once

#include <cstdint>
#include <string_view>

namespace foretoken {

constexpr std::uint64_t mix_bits(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9ull;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

class StableHash {
 public:
  constexpr StableHash& add(std::uint64_t value) {
    state_ = mix_bits(state_ ^ value) + 0x9E3779B97F4A7C15ull;
    return *this;
  }
  // The length goes in too, so that neighbours cannot trade bytes.
  constexpr StableHash& add(std::string_view text) {
    std::uint64_t fnv = 0xCBF29CE484222325ull;
    for (const char c : text) fnv = (fnv ^ static_cast<unsigned char>(c)) * 0x100000001B3ull;
    return add(fnv).add(static_cast<std::uint64_t>(text.size()));
  }
  constexpr std::uint64_t value() const { return mix_bits(state_); }

 private:
  std::uint64_t state_ = 0x6A09E667F3BCC908ull;
};

}  // namespace foretoken
