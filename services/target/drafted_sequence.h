// What a draft is sent of one sequence: ATTACH with everything, then PROPOSE with what the draft
// may lack. A tail is counted from what the draft confirmed, not from what was sent last, so the
// next one replaces what got lost. It knows which tokens, not which draft and not when: no clock,
// no socket, no attachment. The engine's text is borrowed. One thread.
#pragma once

#include <cstdint>
#include <vector>

#include "common/spec/proposer.h"
#include "common/wire/codec.h"

namespace foretoken {

class DraftedSequence {
 public:
  // The budget is asked for with ATTACH, before the engine asks.
  DraftedSequence(const Opening& opening, std::uint32_t first_budget);

  void want(std::uint32_t budget) { budget_ = budget; }  // so many tokens ahead
  SeqId seq() const { return seq_; }
  Position n_tokens() const { return text_->size(); }
  Epoch epoch() const { return epoch_; }  // of the last PROPOSE

  // Everything, which counts as known from now on. What the target says of itself is for the caller
  // to add.
  wire::Attach attach(Lease lease);
  // What the draft may lack, under an epoch of its own. A paused draft is asked for nothing.
  enum class AskFor : std::uint8_t { kGuesses, kNothing };
  wire::ProposeRecord propose(Lease lease, AskFor what);

  // The end, with the tokens that were in no PROPOSE.
  wire::CloseSequence close(Lease lease) const;

  // The draft has so many tokens, and they are these.
  bool begins_with(Position n_known, PrefixHash prefix) const;
  void confirm(Position n_known);                            // it has at least these
  void fall_back_to(Position n_known) { known_ = n_known; }  // it has no more than these

 private:
  SeqId seq_;
  SamplingParams params_;
  std::uint32_t n_prompt_;
  const CommittedTokens* text_;
  std::uint64_t tenant_salt_;
  std::uint32_t budget_;
  Epoch epoch_{0};
  Position known_ = 0;  // what the draft confirmed, or was sent by ATTACH
};

}  // namespace foretoken
