// A 64-bit hash with the same value on every machine, for fingerprints and tables. Not
// cryptographic: a fingerprint guards against mistakes, not against a forger.
#pragma once

#include <cstdint>
#include <string_view>

#include "common/base/hash.h"

namespace foretoken {

class StableHash {
 public:
  constexpr StableHash& add(std::uint64_t value) {
    state_ = mix64(state_ ^ value) + kGoldenRatio64;
    return *this;
  }
  // The length goes in too, so that neighbours cannot trade bytes.
  constexpr StableHash& add(std::string_view text) {
    return add(fnv1a(text)).add(static_cast<std::uint64_t>(text.size()));
  }
  constexpr std::uint64_t value() const { return mix64(state_); }

 private:
  std::uint64_t state_ = 0x6A09E667F3BCC908ull;
};

}  // namespace foretoken
