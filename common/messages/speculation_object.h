// The object "speculation" of HTTP bodies: how its members are called there, and the keys of a
// request that they are. The edge reads the object, the command writes it.
#pragma once

#include <string_view>

namespace foretoken::wire {

struct SpeculationMember {
  std::string_view name;
  std::string_view key;
};
inline constexpr SpeculationMember kSpeculationMembers[] = {
    {"draft_len", "num_draft_tokens"},
    {"proposer", "proposer"},
    {"adaptive", "adaptive"},
    {"acceptance", "acceptance"},
};

}  // namespace foretoken::wire
