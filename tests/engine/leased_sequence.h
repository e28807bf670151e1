// A sequence under a lease without an engine, for the tests of what is made of such sequences.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "common/engine/leased_sequence.h"
#include "tests/engine/attach_request.h"

namespace foretoken::test {

struct LeasedOptions {
  std::uint64_t seq = 1;
  std::vector<TokenId> prompt = {3, 1, 4, 1, 5};
  std::vector<TokenId> end_tokens;
  ChainLimits limits{.max_ahead = 8, .max_len = 100};
  std::uint32_t budget = 0;  // and with one an answer is owed
  std::uint32_t run_ahead = 0;
};

// Greedy, and of the target 1.5.
inline std::unique_ptr<LeasedSequence> leased_sequence(const LeasedOptions& options) {
  wire::Attach attach = attach_message(SeqId{options.seq}, 42, options.prompt, options.budget,
                                       {.temperature = 0, .max_tokens = 100});
  auto sequence = std::make_unique<LeasedSequence>(
      DraftKey{{WorkerId{1}, Incarnation{5}}, attach.seq}, attach,
      LeaseTerms{.limits = options.limits, .end_tokens = options.end_tokens, .constraint = {}});
  sequence->cache_name = attach.seq;
  sequence->turn = options.seq;
  sequence->budget = options.budget;
  sequence->owes_answer = options.budget > 0;
  sequence->run_ahead = options.run_ahead;
  return sequence;
}

// Guesses of its draft, each of confidence 200.
inline void guess(LeasedSequence& sequence, const std::vector<TokenId>& tokens) {
  for (const TokenId token : tokens) sequence.chain.append(token, {.confidence = 200});
  sequence.has_guessed = sequence.has_guessed || !tokens.empty();
}

}  // namespace foretoken::test
