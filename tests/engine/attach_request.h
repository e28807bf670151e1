// A target's ATTACH as the tests of the draft engine say it.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "common/engine/draft_engine.h"
#include "common/spec/prefix_hash.h"

namespace foretoken::test {

// All tokens are the prompt; they go with the request and need no commit.
inline AttachRequest attach_request(const DraftKey& key,
                                    PrefixHash root,
                                    std::vector<TokenId> tokens,
                                    std::uint32_t budget,
                                    const SamplingParams& params) {
  AttachRequest request{.key = key, .lease = Lease{1}, .root = root, .params = params};
  request.n_prompt = static_cast<std::uint32_t>(tokens.size());
  request.prefix = prefix_hash_extend(root, tokens);
  request.tokens = std::move(tokens);
  request.budget = budget;
  return request;
}

}  // namespace foretoken::test
