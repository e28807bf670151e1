// A target's messages as the tests of the draft engine say them.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "common/engine/draft_events.h"
#include "common/spec/prefix_hash.h"

namespace foretoken::test {

// All tokens are the prompt; they go with the request and need no commit.
inline wire::Attach attach_message(SeqId seq,
                                   PrefixHash root,
                                   std::vector<TokenId> tokens,
                                   std::uint32_t budget,
                                   const SamplingParams& params) {
  wire::Attach attach{.seq = seq, .lease = Lease{1}, .params = params, .root = root};
  attach.n_prompt = static_cast<std::uint32_t>(tokens.size());
  attach.prefix = prefix_hash_extend(root, tokens);
  attach.tokens = std::move(tokens);
  attach.budget = budget;
  return attach;
}

}  // namespace foretoken::test
