// One pass of a draft, or several chained on the device: which sequences have rows in it, of
// chains, of prompts as far as there is time, and of branches; who loses blocks where they are
// short; and what the rows chose, appended to the chains. Must not know messages, leases' times, or
// what is sent to targets. Borrows the sequences, the cache and the step. No clock; one thread.
//
// draft_pass.cc: a pass from begin to end; draft_pass_rows.cc: its rows and their blocks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "common/base/clock.h"
#include "common/engine/draft_branches.h"
#include "common/engine/leased_sequence.h"
#include "common/engine/prompt_budget.h"
#include "common/engine/step.h"
#include "common/kv/kv_cache.h"
#include "common/spec/step_cost.h"

namespace foretoken {

struct DraftPassLimits {
  std::uint32_t max_batch_rows = 0;
  std::uint32_t prefill_chunk = 0;
  std::uint32_t max_chained = 1;  // steps that the device takes before the host listens
  Duration max_step{};            // with a prompt; 0: no bound
};

// All borrowed.
struct DraftPassParts {
  const LeasedSequences& sequences;
  KvCache& kv;
  Step& step;
  StepCost& cost;
  DraftBranches& branches;
};

struct DraftPassCounts {
  std::uint32_t n_rows = 0;   // 0: nothing was run
  std::uint32_t n_steps = 0;  // one after another
  std::uint32_t n_drafted = 0;
};

class DraftPass {
 public:
  // prompt_context: as PrefillCost has it.
  DraftPass(const DraftPassParts& parts, const DraftPassLimits& limits, double prompt_context);

  DraftPassCounts run();
  // Sequences that lost their blocks in the last pass, and with them what they were asked for.
  // Until the next run().
  std::span<LeasedSequence* const> lost_blocks() const { return lost_blocks_; }
  // What the last pass took, if it ran anything: later prompts are cut by it.
  void record_time(Duration took);
  // A turn that comes after all others so far: sequences have rows in that order.
  std::uint64_t next_turn() { return ++n_turns_; }

 private:
  struct RowsLeft {
    std::uint32_t all = 0;
    std::uint32_t of_prompts = 0;
    std::uint32_t least() const { return std::min(all, of_prompts); }
  };
  void choose_sequences();
  std::uint32_t n_chainable() const;
  void plan_prompts();
  void plan_branches();
  void add_rows();
  void open_cache(LeasedSequence& sequence);
  std::uint32_t n_missing(const LeasedSequence& sequence) const;
  std::uint32_t n_rows_now(const LeasedSequence& sequence, std::uint32_t room) const;
  bool add_finding_blocks(LeasedSequence& sequence, std::uint32_t n_rows);
  bool add_slice(LeasedSequence& sequence, std::uint32_t n_rows);
  bool drop_all_branches();
  LeasedSequence* victim_for(const LeasedSequence& beneficiary) const;
  bool take_blocks_from_another(const LeasedSequence& beneficiary);
  void take_blocks(LeasedSequence& sequence);
  bool is_idle(const LeasedSequence& sequence) const;
  void extend(LeasedSequence& sequence, std::size_t slice);
  std::uint32_t append_choices(LeasedSequence& sequence, std::size_t slice, std::uint32_t n_fed);

  const LeasedSequences& sequences_;
  KvCache& kv_;
  Step& step_;
  StepCost& cost_;
  DraftBranches& branches_;
  DraftPassLimits limits_;
  PromptBudget prompts_;
  std::uint64_t n_turns_ = 0;
  std::vector<LeasedSequence*> order_;
  std::vector<LeasedSequence*> in_step_;  // beside the step's first slices
  std::vector<LeasedSequence*> lost_blocks_;
  std::vector<BranchedSequence*> branching_;  // kept for its memory
  DraftPassCounts counts_;
};

}  // namespace foretoken
