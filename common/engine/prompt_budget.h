// How many prompt rows a draft's pass may have. A chain takes several passes and its target waits
// for it, so a prompt beside it is cut to what the pass has time for; what rows cost is learnt from
// what passes took. Must not know sequences, the cache or the model. Pure: durations are arguments.
// One thread.
//
// A pass: begin(), then rows_within() and add() of each slice, observe() once it was timed.
#pragma once

#include <cstdint>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/spec/prefill_cost.h"

namespace foretoken {

// What a pass has beside its prompts.
struct PassLoad {
  std::uint32_t n_chains = 0;   // with rows in it
  Duration plain{};             // what it takes with these alone; 0: not known
  std::size_t n_sequences = 0;  // that the draft holds
};

class PromptBudget {
 public:
  // context: as PrefillCost has it. max_step: of a pass with a prompt; 0: no bound.
  PromptBudget(double context, Duration max_step) : cost_(context), max_step_(max_step) {}

  // Beside chains prompts get half of the time; else no more than max_step, as the next record may
  // come any moment; and twice that if there is no other sequence. Where a pass of one row takes
  // half of that, twice such a pass.
  void begin(const PassLoad& load);
  // Of n rows after n_cached tokens those that this pass has time for. A few are always taken, and
  // the first of several sequences gets a few more in any case.
  std::uint32_t rows_within(Position n_cached, std::uint32_t n_rows) const;
  void add(Position n_cached, std::uint32_t n_rows);
  // Rows were the limit of this pass, not time.
  void limit_to_added() { most_work_ = work_; }

  void observe(Duration took) { cost_.observe(work_, most_work_, planned_, took); }
  // Rows that the attention of this pass's prompts is worth, beside their own.
  double attention_rows() const { return attention_rows_; }

 private:
  PrefillCost cost_;
  Duration max_step_;
  Duration planned_{};  // 0: no bound
  double most_work_ = 0;
  double work_ = 0;
  double attention_rows_ = 0;
};

}  // namespace foretoken
