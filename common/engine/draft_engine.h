// DraftEngine: guesses ahead for sequences of many targets, batched together. Everything here is a
// cache: a target may vanish, repeat itself or attach anew at any time, and what this engine says
// can change how fast a target is, never what it writes. Pure: no clock, no I/O, no lock. Blind to
// links, and to what became of a proposal beyond the next tail. One thread.
//
// A leased sequence has the tokens its target committed and its own chain of guesses after them
// (DraftChain). A record that does not agree with the chain cuts it and its cache at the first
// differing token, never at a block's edge, unless a text beside the chain goes on so
// (DraftBranches). Guesses are drawn by the target's own rule: same parameters, same noise. Of a
// sequence that has outgrown the draft's longest context only length and hash are kept.
//
// Owns the cache, the step and the leases. draft_follow.cc: what targets say; draft_planning.cc:
// the rows of a pass; draft_answering.cc: what is sent to targets.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/base/result.h"
#include "common/engine/draft_branches.h"
#include "common/engine/engine_options.h"
#include "common/engine/step.h"
#include "common/kv/kv_cache.h"
#include "common/messages/draft.h"
#include "common/spec/prefill_cost.h"
#include "common/spec/step_cost.h"

namespace foretoken {

// One run of a target. One that restarts has another incarnation, so nothing of its former one is
// confused with it.
struct TargetKey {
  WorkerId target{};
  Incarnation incarnation{};
  auto operator<=>(const TargetKey&) const = default;
};

struct Applied {};  // taken in
struct Ignored {};  // of a dead lease, or a record older than one applied: drop and count

using DraftOutcome = std::variant<Applied, Ignored, wire::Need, wire::DraftBusy>;

// Answers to an ATTACH that is not taken: its tokens are not those of its fingerprint, or there is
// no room.
wire::Need mismatch_of(const wire::Attach& attach);
wire::DraftBusy busy_with(const wire::Attach& attach, Duration retry_after);

// A chain ready to be sent, complete or as far as it was when the next record overtook it (then the
// epoch is that of the record before, and an answer to the later one follows), or longer than it
// was when that epoch was answered. May be empty: there is nothing to say beyond the draft's
// longest context or after an end token, and the target need not wait.
struct ReadyProposal {
  TargetKey to;
  wire::ProposalRecord record;
  TimePoint asked{};  // when the record came that it answers; none: no question
};

// A sequence that lost its blocks to others.
struct BusySequence {
  TargetKey of;
  wire::DraftBusy busy;
};

struct DraftOutput {
  std::vector<ReadyProposal> proposals;
  std::vector<BusySequence> busy;
  std::uint32_t n_rows = 0;   // 0: nothing was run
  std::uint32_t n_steps = 0;  // one after another in this pass
  std::uint32_t n_drafted = 0;
};

struct DraftSnapshot {
  std::uint32_t n_attached = 0;    // now
  std::uint32_t n_behind = 0;      // now: sequences with work to do
  std::uint64_t n_remembered = 0;  // now: tokens kept of all of them, own guesses included
  KvStats kv;
  std::uint64_t n_ignored = 0;
  std::uint64_t n_needs = 0;
  std::uint64_t n_busy = 0;
  std::uint64_t n_expired = 0;
  std::uint64_t n_steps = 0;
  std::uint64_t n_rows = 0;
  std::uint64_t n_drafted = 0;         // tokens guessed
  std::uint64_t n_kept = 0;            // guesses that a later tail confirmed
  std::uint64_t n_cut = 0;             // guesses thrown away
  std::uint64_t n_branches = 0;        // texts begun beside a chain
  std::uint64_t n_branches_taken = 0;  // of these, those that the target's text went on with
  std::uint64_t n_branch_tokens = 0;   // guessed for them; n_drafted has those of branches taken
};

class DraftEngine {
 public:
  DraftEngine(Model& model, Backend& backend, const DraftEngineOptions& options);
  ~DraftEngine();

  // Opens or refreshes a sequence. A newer lease forgets the old one; the same lease is followed
  // like a record from position 0; an older one is ignored.
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
  struct LeasedSequence;
  struct DraftKey {
    TargetKey target;
    SeqId seq{};
    auto operator<=>(const DraftKey&) const = default;
  };
  using LeasedSequences = std::map<DraftKey, std::unique_ptr<LeasedSequence>>;

  DraftOutcome attach_anew(const TargetKey& from, wire::Attach& attach, TimePoint now);
  DraftOutcome apply(LeasedSequence& sequence, const wire::ProposeRecord& record, TimePoint now);
  void take_in(LeasedSequence& sequence, std::span<const TokenId> committed);
  void cut(LeasedSequence& sequence, std::uint32_t n_agreed);
  wire::Need need(const LeasedSequence& sequence, NeedReason reason);
  void forget(LeasedSequences::iterator at);
  void drop_cache(LeasedSequence& sequence);
  void outgrow_if_due(LeasedSequence& sequence);
  void expire(TimePoint now);

  std::uint32_t chain_limit(const LeasedSequence& sequence) const;
  bool is_ahead(const LeasedSequence& sequence) const;
  bool can_grow(const LeasedSequence& sequence) const;
  bool wants_rows(const LeasedSequence& sequence) const;
  std::uint32_t n_pending(const LeasedSequence& sequence) const;
  std::uint32_t n_wanted(const LeasedSequence& sequence) const;
  std::uint32_t n_chainable() const;
  void fill_step(TimePoint now);
  void plan_prompts();
  std::uint32_t rows_in_time(const LeasedSequence& sequence, std::uint32_t n_rows) const;
  void note_prompt_work(const LeasedSequence& sequence, std::uint32_t n_rows);
  bool add_slice(LeasedSequence& sequence, std::uint32_t n_rows);
  bool take_blocks_from_another(const LeasedSequence& beneficiary, TimePoint now);
  void set_busy(LeasedSequence& sequence, TimePoint now);
  static wire::DraftBusy busy(const LeasedSequence& sequence, Duration retry_after);
  void extend(LeasedSequence& sequence, std::size_t slice);
  std::uint32_t append_choices(LeasedSequence& sequence, std::size_t slice, std::uint32_t n_fed);
  bool emit_overtaken();
  void emit_held();
  void emit_ready();
  void emit_if_ready(LeasedSequence& sequence);
  void emit_ahead();
  static bool has_news(const LeasedSequence& sequence);
  static void append_branches(LeasedSequence& sequence, wire::ProposalRecord& record);
  bool may_branch(const LeasedSequence& sequence) const;
  void plan_branches();
  bool drop_all_branches();
  enum class Answer : std::uint8_t { kWhole, kPart };
  void emit(LeasedSequence& sequence, Epoch epoch, TimePoint asked, Answer answer);

  DraftEngineOptions options_;
  std::vector<TokenId> eos_ids_;
  Position max_len_;           // of a text
  std::uint32_t max_chained_;  // steps that the device takes before the host listens
  TokenId n_ids_ = 0;
  KvCache kv_;
  Step step_;
  LeasedSequences sequences_;
  std::map<TargetKey, std::uint32_t> run_ahead_;  // where it is not as in the options
  std::uint64_t n_opened_ = 0;                    // names sequences in kv_
  std::uint64_t n_turns_ = 0;
  std::vector<LeasedSequence*> in_step_;  // beside the step's first slices
  std::vector<LeasedSequence*> order_;
  std::vector<BranchedSequence*> branching_;  // kept for its memory

  // What passes cost, and how much prompt the one under way may have.
  StepCost cost_;
  PrefillCost prefill_;
  Duration planned_{};  // 0: no bound
  double most_work_ = 0;
  double prompt_work_ = 0;
  double attention_rows_ = 0;  // that the prompts' attention is worth
  DraftBranches branches_;     // forks sequences of kv_
  DraftOutput output_;
  DraftSnapshot totals_;
};

}  // namespace foretoken
