// A source of guesses at what comes next. A proposer never blocks, never owns truth and may always
// stay silent; what it says can change how fast tokens come, never which. It must not know the
// target model or the batch. The engine's thread makes all four calls.
#pragma once

#include <cstdint>
#include <span>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/base/sampling_params.h"
#include "common/spec/committed_tokens.h"
#include "common/spec/proposal.h"
#include "common/spec/proposal_store.h"

namespace foretoken {

// Those that are asked over a link and answer later. The others answer at once.
inline constexpr ProposerSet kAskedOverALink{ProposerKind::kDraft, ProposerKind::kMemory};

// A sequence as it begins. What else is not a value is borrowed for the call.
struct Opening {
  SeqId seq{};
  const CommittedTokens& text;  // lent until close()
  std::uint32_t n_prompt = 0;   // of its tokens; the others are of the answer
  const SamplingParams& params;
  std::span<const TokenId> prediction;  // what the client expects the answer to be; often empty
  std::uint64_t tenant_salt = 0;        // separates prefix caches
  bool is_asked_soon = true;            // else nothing need be prepared before the first ask
};

// The text of a sequence has grown, and what is wanted after it.
struct Ask {
  SeqId seq{};
  std::uint32_t budget = 0;      // tokens wanted ahead; 0: only stay current
  std::uint32_t n_verified = 0;  // of the round before: this proposer's tokens that were verified
  std::uint32_t n_accepted = 0;  // and of those, accepted
  std::uint32_t n_at_hand = 0;   // tokens of its chain that go on from there
  Duration step{};               // how long the target's last step took
};

class Proposer {
 public:
  virtual ~Proposer() = default;
  virtual ProposerKind kind() const = 0;
  virtual void open(const Opening& opening) = 0;
  virtual void ask(std::span<const Ask> asks) = 0;
  virtual void collect(TimePoint now,
                       ProposalStore& into) = 0;  // whatever is there by now; often nothing
  virtual void close(SeqId seq) = 0;              // unknown sequences are ignored
};

}  // namespace foretoken
