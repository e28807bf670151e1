// How many calls must be under way at once to come from a node to the end of its rule. A node with
// k calls left can therefore be known to reach an end, or to reach none. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "common/grammar/grammar.h"

namespace foretoken {

struct NodeNeeds {
  static constexpr std::uint32_t kNoEnd = 0xFFFFFFFFu;
  std::vector<std::uint32_t> nodes;
  std::vector<std::uint32_t> rules;  // with one byte at least; kNoEnd: empty or nothing

  static NodeNeeds of(const Grammar& grammar);
};

}  // namespace foretoken
