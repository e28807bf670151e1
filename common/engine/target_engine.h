// TargetEngine: the committed sequences of one target, the only truth about their text. A step
// plans, verifies what proposers offered, commits the target's own tokens one at a time, and asks
// for more. Pure: no clock, no I/O, no lock; its effects go through Model, Backend and Proposers,
// all borrowed. One thread.
//
// The caller's loop:
//   drain the inbox into the draft proposer; engine.open / close
//   if (engine.has_work()) {
//     until wait_hint(now) has passed or proposals_complete(now): wait on the inbox
//     output = engine.step(now); engine.record_step_time(how long step() took); send the events
//   }
// What is proposed, and when, changes how many tokens a step commits, never which tokens.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "common/engine/draft_watch.h"
#include "common/engine/engine_options.h"
#include "common/engine/fair_rows.h"
#include "common/engine/lookup_wait.h"
#include "common/engine/proposal_wait.h"
#include "common/engine/scheduler.h"
#include "common/engine/sequence.h"
#include "common/engine/step.h"
#include "common/engine/target_events.h"
#include "common/model/model.h"
#include "common/spec/draft_budget.h"
#include "common/spec/draft_length.h"
#include "common/spec/drafting_gate.h"
#include "common/spec/lookup_gains.h"
#include "common/spec/prefill_cost.h"
#include "common/spec/proposal_store.h"
#include "common/spec/proposer.h"
#include "kernels/include/backend.h"

namespace foretoken {

// Who proposes. Borrowed; any may be absent, and requests that name only absent ones decode
// plainly.
struct Proposers {
  std::vector<Proposer*> each;  // at most one of a kind
  // Of the draft proposer where drafts are remote; null: its answers are immediate.
  const DraftWatch* watch = nullptr;
  const DraftWatch* memory_watch = nullptr;  // likewise of a memory of texts
};

class TargetEngine {
 public:
  // Allocates the cache. FatalError if one sequence of max_model_len does not fit it, or limits
  // contradict.
  TargetEngine(Model& model,
               Backend& backend,
               const Proposers& proposers,
               const TargetEngineOptions& options);
  ~TargetEngine();

  // Queues a sequence, or says why not: kQueueFull, kDraining, kContextLengthExceeded,
  // kInvalidValue, kInvalidRequest (the id is in use). An error leaves nothing behind and no event
  // follows. Returns its text, which grows as it is committed and outlives the sequence.
  Result<std::shared_ptr<const CommittedTokens>> open(OpenRequest request, TimePoint now);

  // Ends a sequence now; its Done comes with the next step. False if it is not known (already
  // ended).
  bool close(SeqId seq, CloseReason reason);
  // The Done of a sequence that ended since the last step, which the next step then leaves out.
  std::optional<DoneEvent> take_done(SeqId seq);

  // Whether step() would do anything: sequences, or events not yet handed out.
  bool has_work() const;

  // How long waiting for proposals under way is worth before the next step; 0 when nothing is, when
  // a prompt is being prefilled, or when no draft that answers in time owes one.
  Duration wait_hint(TimePoint now);
  // Takes in what has arrived: true if no active draft owes a decoding sequence an answer any more,
  // so that waiting longer brings nothing.
  bool proposals_complete(TimePoint now);

  // One pass over the batch. The events are the caller's; valid until the next call. Its halves
  // are for a caller that times them: verify() takes in what was proposed, plans the pass and runs
  // it, commit() takes the tokens that stand and asks for more.
  const StepOutput& step(TimePoint now) {
    verify(now);
    return commit();
  }
  void verify(TimePoint now);
  const StepOutput& commit();
  // What the step before took, measured by the caller; feeds the draft-length controller.
  void record_step_time(Duration took);

  void begin_drain() { draining_ = true; }
  TargetSnapshot snapshot() const;
  // Where the model is spread over ranks: between steps, whether all are still there (FatalError if
  // not), and at the very end, that they may go.
  void check_ranks(TimePoint now) { step_.leader().check_ranks(now); }
  void release_ranks() { step_.leader().end(); }
  const KvCache& kv() const { return kv_; }
  const DraftLength& draft_length() const { return length_; }
  const DraftingGate& drafting_gate() const { return gate_; }

 private:
  using Kinds = std::array<std::vector<Ask>, kProposerKinds>;

  struct FlowOfPass {
    std::uint64_t id = 0;
    double weight = 1;
    std::uint32_t n_decoding = 0;
    std::uint32_t n_fixed_rows = 0;     // of sequences whose draft length is fixed
    std::vector<Candidate> candidates;  // the others that decode
    double prompt_work = 0;
    std::uint32_t most_proposals = kMaxDraftTokens;  // for each sequence
    double token_value = 1;
  };
  struct ProposalLimit {
    std::uint32_t most_proposals = 0;
    std::uint64_t until = 0;  // number of a pass
  };

  TokenId n_ids() const;  // ids that may be chosen
  Proposer* proposer_of(ProposerKind kind) const;
  void collect(TimePoint now);
  // Valid until it is asked of the same sequence again.
  const std::vector<PathToken>& best_path(const Sequence& sequence, std::uint32_t n) const;

  // target_sequences.cc: how sequences come and go.
  Result<void> admissible(const OpenRequest& request) const;
  void open_proposers(Sequence& sequence);
  void finish(Sequence& sequence, FinishReason reason);
  void fail(Sequence& sequence, Error error);
  SequenceStats release(Sequence& sequence);

  // target_waiting.cc: when a pass waits for the answers of drafts.
  DraftOutlook outlook(const Sequence& sequence, TimePoint now) const;
  std::optional<DraftOutlook> owed(const Sequence& sequence, TimePoint now) const;
  Expected expected_of(const Sequence& sequence, const DraftOutlook& draft) const;
  bool is_whole_answer_owed(TimePoint now) const;
  Duration longest_wait(TimePoint now);

  // target_flows.cc: how flows share a pass.
  void share_flows();
  void add_to_flow(Sequence& sequence, std::uint32_t n_cached);
  void divide_rows();
  void set_token_values();
  std::uint32_t most_proposals(const Sequence& sequence) const;
  double token_value(const Sequence& sequence) const;

  // target_planning.cc: what runs in a pass.
  void make_plan(TimePoint now);
  void look_up_prefix(Sequence& waiting) const;
  bool is_being_computed(const Sequence& waiting) const;
  std::uint32_t rows_worth_a_pass() const;
  PassCosts pass_costs() const;
  std::uint32_t n_longest(const Sequence& sequence) const;
  SequenceView view_of(const Sequence& sequence, std::uint32_t index, bool blocks_are_scarce) const;
  void admit(Sequence& sequence, TimePoint now);
  void preempt(Sequence& sequence);
  void cut_proposals();
  void fill_step();
  bool add_slice(const ScheduledRows& rows, Sequence& sequence);
  void note_prompt_work();

  // target_committing.cc: what a pass decided.
  void commit_slice(std::size_t slice, Sequence& sequence, TimePoint now);
  void note_prefilled(Sequence& sequence, Position start, std::uint32_t n_rows);
  void deliver_prompt(std::size_t slice, Sequence& sequence);
  void deliver(std::size_t slice,
               Sequence& sequence,
               std::span<const TokenId> committed,
               std::uint32_t n_accepted);
  void note_round(Sequence& sequence,
                  std::uint32_t n_accepted,
                  std::uint32_t n_delivered,
                  TimePoint now);
  void note_proposals(Sequence& sequence, std::span<const ScoredToken> scored);
  void note_draft_tokens(std::span<const ScoredToken> scored);

  // target_asking.cc: who is asked after a pass, and for how much.
  void ask_all(TimePoint now);
  void ask_kinds(ProposerSet kinds, TimePoint now);
  void ask_draft(Sequence& sequence, TimePoint now);
  std::uint32_t draft_budget_of(const Sequence& sequence, const DraftOutlook& draft);
  std::uint32_t best_budget(std::uint32_t cap);
  std::uint32_t n_drafted_ahead(const Sequence& sequence) const;
  static std::uint32_t n_drafted(std::span<const PathToken> path);  // its first tokens
  std::uint32_t most_asked(const Sequence& sequence) const;
  std::uint32_t budget_of(const Sequence& sequence) const;  // of a draft
  void add_ask(ProposerKind kind, const Sequence& sequence, std::uint32_t budget);
  bool is_gated(const Sequence& sequence) const;
  void note_undrafted_path(Sequence& sequence, std::uint32_t cap) const;
  static std::uint32_t n_undrafted(const Sequence& sequence, std::uint32_t n_delivered);
  bool is_asked_now(const Sequence& sequence) const;
  bool may_ask(const Sequence& sequence, TimePoint now) const;
  void note_yield(Duration took);
  FallbackReason why_plain(const Sequence& sequence, TimePoint now) const;

  // target_lookups.cc: when a memory of texts is asked and waited for.
  double least_lookup_gain() const;
  LookupGate::AtHand at_hand_of(const Sequence& sequence, std::uint32_t budget) const;
  void look_up(Sequence& sequence);
  void note_last_lookup(const Sequence& sequence);
  void note_lookups(Sequence& sequence, std::uint32_t n_accepted);
  bool is_lookup_owed(const Sequence& sequence, TimePoint now) const;
  Duration lookup_wait(TimePoint now);
  bool is_any_lookup_owed(TimePoint now) const;

  Model& model_;
  std::array<Proposer*, kProposerKinds> proposers_{};  // by kind
  const DraftWatch* watch_;
  const DraftWatch* memory_watch_;
  TargetEngineOptions options_;
  SchedulerLimits limits_;
  KvCache kv_;
  Step step_;
  ProposalStore store_;
  DraftLength length_;
  DepthOutcomes outcomes_;
  DraftBudget budget_;
  std::array<std::uint32_t, kMaxDraftTokens + 1> best_budgets_{};  // by cap; 0: not asked yet
  std::uint32_t n_to_make_ = 0;  // of the draft that has most to make for what was asked last
  ProposalWait wait_;
  LookupWait lookup_wait_;
  LookupGains lookup_gains_;
  DraftingGate gate_;
  PrefillCost prefill_;
  bool draining_ = false;

  std::unordered_map<SeqId, std::unique_ptr<Sequence>> sequences_;
  std::vector<Sequence*> running_;  // in order of service
  std::vector<Sequence*> waiting_;  // likewise
  std::uint64_t n_arrived_ = 0;
  bool is_prefilling_ = false;  // a prompt was under way after the last step, or has come since
  Duration last_took_{};
  // From the end of a pass to the beginning of the next, by sequences that had tokens in it, where
  // nothing is waited for; and a pass with its pause: what rows cost the flows that share it.
  StepCost pause_cost_{/*follow=*/0.5}, pass_cost_{/*follow=*/0.5};
  bool is_next_at_once_ = false;  // the next pass begins as soon as the last one's tokens are sent
  TimePoint step_began_{};
  TimePoint step_ended_{};       // of the last one that ran anything
  std::uint32_t n_decoded_ = 0;  // sequences in the last step
  double committed_value_ = 0;   // of its tokens, by token_value()
  double undrafted_value_ = 0;   // likewise, of those that would have come without drafts
  double prompt_work_ = 0;       // of the last step
  double attention_rows_ = 0;    // of the last step: rows that its prompts' attention is worth
  bool is_timed_ = true;         // record_step_time() was called for the last step

  StepOutput output_;
  std::vector<DoneEvent> ended_;  // of sequences that ended since the last output
  std::vector<FailedEvent> broken_;
  TargetSnapshot totals_;

  // Of the step under way; kept for their capacity.
  Schedule schedule_;
  std::vector<SequenceView> running_views_;
  std::vector<SequenceView> waiting_views_;
  std::vector<Sequence*> handles_;                               // SequenceView::index -> sequence
  std::vector<Sequence*> in_step_;                               // beside the step's slices
  std::vector<FlowOfPass> flows_;                                // by SequenceView::flow
  std::unordered_map<std::uint64_t, std::uint32_t> flow_index_;  // id -> place in flows_
  std::vector<std::uint32_t> flow_rows_;                         // empty: no bound
  std::unordered_map<std::uint64_t, ProposalLimit> proposal_limits_;  // by id of a flow
  std::vector<Candidate> candidates_;
  std::vector<TokenId> drafted_;
  Kinds asks_;
};

}  // namespace foretoken
