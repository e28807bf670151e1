// What a proposer says: tokens that may follow a prefix. Plain data.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "common/base/ids.h"

namespace foretoken {

enum class ProposerKind : std::uint8_t { kNone, kDraft, kNgram, kPrediction };
inline constexpr std::size_t kProposerKinds = 4;
inline constexpr std::array<std::string_view, kProposerKinds> kProposerNames{"none", "draft",
                                                                             "ngram", "prediction"};

constexpr std::string_view proposer_name(ProposerKind kind) {
  return kProposerNames[static_cast<std::size_t>(kind)];
}

inline constexpr std::uint16_t kParentIsBase = 0xFFFF;  // the node continues the base itself

// A tree of tokens after the prefix of `base` tokens whose hash is `prefix`. Node i follows node
// parents[i] < i; without parents it is a chain.
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
  ProposerKind source = ProposerKind::kNone;
  bool operator==(const PathToken&) const = default;
};

}  // namespace foretoken
