#include "common/spec/committed_tokens.h"

#include <utility>

namespace foretoken {

CommittedTokens::CommittedTokens(PrefixHash root, std::vector<TokenId> tokens)
    : tokens_(std::move(tokens)), hashes_{root} {
  hashes_.reserve(tokens_.size() + 1);
  for (const TokenId token : tokens_) hashes_.push_back(prefix_hash_next(hashes_.back(), token));
}

void CommittedTokens::append(TokenId token) {
  tokens_.push_back(token);
  hashes_.push_back(prefix_hash_next(hashes_.back(), token));
}

}  // namespace foretoken
