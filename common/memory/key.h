// The key of last tokens, from the last one backwards, so that those of longer orders begin with
// those of shorter ones. Unequal tokens with equal keys are distinguished by comparison. Pure.
#pragma once

#include <cstdint>

#include "common/base/hash.h"
#include "common/base/ids.h"

namespace foretoken {

inline std::uint64_t longer_key(std::uint64_t key, TokenId token) {
  key = (key ^ static_cast<std::uint32_t>(token)) * kGoldenRatio64;
  return key ^ (key >> 29);
}

}  // namespace foretoken
