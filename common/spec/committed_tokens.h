// The tokens of a sequence that are decided: prompt, then answer, with the hash of every prefix.
// Append-only, so what a room borrows of it stays true and only grows. The engine owns one for each
// sequence and lends it to the proposal store and the proposers until it closes the sequence there.
// One thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/ids.h"
#include "common/spec/prefix_hash.h"

namespace foretoken {

class CommittedTokens {
 public:
  // `root` is H(0).
  explicit CommittedTokens(PrefixHash root, std::vector<TokenId> tokens = {});

  void append(TokenId token);

  std::span<const TokenId> tokens() const { return tokens_; }
  std::span<const TokenId> from(Position at) const { return tokens().subspan(at); }
  Position size() const { return static_cast<Position>(tokens_.size()); }
  TokenId back() const { return tokens_.back(); }
  PrefixHash prefix() const { return hashes_.back(); }           // of all tokens
  PrefixHash prefix(Position n) const { return hashes_.at(n); }  // of the first n <= size()

 private:
  std::vector<TokenId> tokens_;
  std::vector<PrefixHash> hashes_;  // [size + 1]
};

}  // namespace foretoken
