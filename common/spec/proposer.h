// A source of guesses at what comes next. A proposer never blocks, never owns truth and may always
// stay silent; what it says can change how fast tokens come, never which. It must not know the
// target model or the batch. The engine's thread makes all four calls.
#pragma once

#include <cstdint>
#include <span>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/base/sampling_params.h"
#include "common/spec/proposal.h"
#include "common/spec/proposal_store.h"

namespace foretoken {

// A sequence as it begins. Spans are borrowed for the call.
struct Opening {
  SeqId seq{};
  std::span<const TokenId> prompt;
  const SamplingParams& params;
  std::span<const TokenId> prediction;  // what the client expects the answer to be; often empty
  std::uint64_t tenant_salt = 0;        // separates prefix caches
  bool is_asked_soon = true;            // else nothing need be prepared before the first ask
};

// What happened to a sequence since the last ask, and what is wanted. Cumulative: a tail that
// begins earlier than what is known is followed from where it is new.
struct Ask {
  SeqId seq{};
  Position from = 0;              // position of tail[0]
  std::span<const TokenId> tail;  // committed tokens; may be empty
  PrefixHash prefix = 0;          // of all tokens up to the end of the tail
  std::uint32_t budget = 0;       // tokens wanted ahead; 0: only stay current
  std::uint32_t n_verified = 0;   // of the round before: this proposer's tokens that were verified
  std::uint32_t n_accepted = 0;   // and of those, accepted
  Duration step{};                // how long the target's last step took
  Duration next_in{};             // expected start of the next verification, from now
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
