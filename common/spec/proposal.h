// What a proposer says: tokens that may follow a prefix. Plain data.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/ids.h"
#include "common/base/proposer_set.h"
#include "common/base/vocabulary.h"

namespace foretoken {

inline constexpr std::uint16_t kParentIsBase = 0xFFFF;  // the node continues the base itself

// A tree of tokens after the prefix of `base` tokens whose hash is `prefix`. Node i follows node
// parents[i] < i; without parents it is a chain. Of several nodes after one the first is the
// proposer's guess, the others are runners-up: what comes if that is wrong.
struct Proposal {
  Position base = 0;
  PrefixHash prefix = 0;
  std::vector<TokenId> tokens;            // [n]
  std::vector<std::uint16_t> parents;     // [n] or empty
  std::vector<std::uint8_t> confidences;  // [n]: 255 * P(node is right, given its parent is)
  ProposerKind source = ProposerKind::kNone;
  bool operator==(const Proposal&) const = default;
};

// One token of a path that might be verified.
struct PathToken {
  TokenId token = -1;
  std::uint8_t confidence = 0;
  ProposerKind source = ProposerKind::kNone;  // who is surest of it
  ProposerSet sources;                        // who says it
  bool is_runner_up = false;                  // all who say it say another first
  bool operator==(const PathToken&) const = default;
};

// What became of a proposed token whose turn came: the text went on with it, or not.
struct ScoredToken {
  PathToken token;
  std::uint32_t depth = 0;  // 0: the first after the text as it was before the round
  bool stood = false;
  bool operator==(const ScoredToken&) const = default;
};

}  // namespace foretoken
