// DraftEngine: guesses ahead for sequences of many targets, batched together. Everything here is a
// cache: a target may vanish, repeat itself or attach anew at any time, and what this engine says
// can change how fast a target is, never what it writes. Pure: no clock, no I/O, no lock. Blind to
// links, and to what became of a proposal beyond the next tail. One thread.
//
// A leased sequence has the tokens its target committed and its own chain of guesses after them
// (DraftChain). A record that does not agree with the chain cuts it and its cache at the first
// differing token, never at a block's edge, unless a text beside the chain goes on so
// (DraftBranches). Guesses are drawn by the target's own rule: same parameters, same noise. Of a
// sequence that has outgrown the draft, by its longest context or by a token that its model has no
// embedding for, only length and hash are kept.
//
// Owns the cache, the step and the leases. draft_follow.cc: what targets say. What else a step has
// is in classes of its own: DraftPass has the rows, draft_answers.h what is sent to targets.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/engine/draft_branches.h"
#include "common/engine/draft_events.h"
#include "common/engine/draft_pass.h"
#include "common/engine/engine_options.h"
#include "common/engine/leased_sequence.h"
#include "common/engine/step.h"
#include "common/kv/kv_cache.h"
#include "common/messages/draft.h"
#include "common/spec/step_cost.h"

namespace foretoken {

class DraftEngine {
 public:
  DraftEngine(Model& model, Backend& backend, const DraftEngineOptions& options);

  // Opens or refreshes a sequence. A newer lease forgets the old one; the same lease is followed
  // like a record from position 0, and prefilled if its cache went to others; an older one is
  // ignored.
  // Whether this draft can serve the target at all is for the caller to check: vocabulary,
  // acceptance and noise version are not looked at.
  DraftOutcome attach(const TargetKey& from, wire::Attach attach, TimePoint now);
  DraftOutcome follow(const TargetKey& from, const wire::ProposeRecord& record, TimePoint now);
  // Forgets a sequence; unknown ones and other leases are ignored.
  void detach(const TargetKey& from, const wire::CloseSequence& close);
  // Forgets everything of a target that is gone, or of its former incarnations.
  void detach_all(WorkerId target, Incarnation except = {});
  // How far chains of a target's sequences go on beyond what it asks for, from now on; nothing: as
  // the options say.
  void set_run_ahead(const TargetKey& target, std::optional<std::uint32_t> n_tokens);
  // Renews the leases of a target that has sent something.
  void renew(const TargetKey& target, TimePoint now);

  bool has_work() const;
  // One batched pass: a row for every sequence that wants a longer chain, chunks for those that
  // are behind; or several steps at once on the device, until the first sequence has what it
  // wants. Also frees sequences whose lease has run out. Valid until the next call.
  const DraftOutput& step(TimePoint now);
  // What the step before took, measured by the caller, if it ran anything: later prompts are cut by
  // it.
  void record_step_time(Duration took);

  DraftSnapshot snapshot() const;
  // Where the model is spread over ranks: between steps, whether all are still there (FatalError if
  // not), and at the very end, that they may go.
  void check_ranks(TimePoint now) { step_.leader().check_ranks(now); }
  void release_ranks() { step_.leader().end(); }
  const KvCache& kv() const { return kv_; }

 private:
  DraftOutcome attach_anew(const TargetKey& from, wire::Attach& attach, TimePoint now);
  bool has_place(TimePoint now);
  LeasedSequence& add_sequence(const DraftKey& key,
                               wire::Attach& attach,
                               std::optional<Constraint> constraint,
                               TimePoint now);
  DraftOutcome apply(LeasedSequence& sequence, const wire::ProposeRecord& record, TimePoint now);
  bool has_lost_cache(const LeasedSequence& sequence) const;
  void take_in(LeasedSequence& sequence, std::span<const TokenId> committed);
  void cut(LeasedSequence& sequence, std::uint32_t n_agreed);
  wire::Need need(const LeasedSequence& sequence, NeedReason reason);
  wire::DraftBusy busy(const LeasedSequence& sequence, Duration retry_after);
  void forget(LeasedSequences::iterator at);
  void outgrow(LeasedSequence& sequence);
  void expire(TimePoint now);
  void forget_unnamed();
  void run_pass(TimePoint now);

  DraftEngineOptions options_;
  std::vector<TokenId> eos_ids_;
  TokenId n_ids_;
  ChainLimits limits_;
  KvCache kv_;
  Step step_;
  StepCost cost_;  // of passes by their rows
  LeasedSequences sequences_;
  std::map<TargetKey, std::uint32_t> run_ahead_;  // where it is not as in the options
  std::uint64_t n_opened_ = 0;                    // names sequences in kv_
  DraftBranches branches_;                        // forks sequences of kv_
  DraftPass pass_;
  DraftOutput output_;
  DraftSnapshot totals_;
};

}  // namespace foretoken
