#include "common/engine/draft_pass.h"

#include <algorithm>
#include <chrono>

#include "common/engine/runners_up.h"

namespace foretoken {

DraftPass::DraftPass(const DraftPassParts& parts,
                     const DraftPassLimits& limits,
                     double prompt_context)
    : sequences_(parts.sequences),
      kv_(parts.kv),
      step_(parts.step),
      cost_(parts.cost),
      branches_(parts.branches),
      limits_(limits),
      prompts_(prompt_context, limits.max_step) {}

DraftPassCounts DraftPass::run() {
  counts_ = {};
  lost_blocks_.clear();
  choose_sequences();
  step_.begin(n_chainable());
  plan_prompts();
  plan_branches();
  add_rows();
  if (step_.n_slices() > 0) {
    step_.run();
    for (std::size_t i = 0; i < in_step_.size(); ++i) extend(*in_step_[i], i);
    branches_.extend();
    const StepPlan& plan = step_.plan();
    counts_.n_rows = static_cast<std::uint32_t>(plan.tokens.size());
    counts_.n_rows += plan.n_ahead * static_cast<std::uint32_t>(step_.n_slices());
    counts_.n_steps = 1 + plan.n_ahead;
  }
  step_.begin();
  return counts_;
}

void DraftPass::record_time(Duration took) {
  if (counts_.n_rows == 0) return;
  prompts_.observe(took);
  cost_.observe(
      counts_.n_rows / counts_.n_steps + static_cast<std::uint32_t>(prompts_.attention_rows()),
      took / counts_.n_steps);
}

// Longest wait first, so that no sequence starves however small a pass is. Those that go on unasked
// have rows only where nothing is asked.
void DraftPass::choose_sequences() {
  order_.clear();
  for (const auto& [key, sequence] : sequences_)
    if (sequence->wants_rows(kv_)) order_.push_back(sequence.get());
  const auto is_unasked = [](const LeasedSequence* each) { return each->is_ahead(); };
  if (!std::all_of(order_.begin(), order_.end(), is_unasked)) std::erase_if(order_, is_unasked);
  std::sort(order_.begin(), order_.end(),
            [](const LeasedSequence* a, const LeasedSequence* b) { return a->turn < b->turn; });
}

// Steps that may follow the next one without the host: until the first of all has its guesses, so
// that no sequence waits for another's. None where a prompt is to be read, where a rule looks at
// the tokens that were chosen (penalties and bad words of several tokens are counted by the host),
// and where rows or blocks are scarce.
std::uint32_t DraftPass::n_chainable() const {
  if (limits_.max_chained == 1 || order_.empty()) return 0;
  std::uint32_t n_steps = limits_.max_chained;
  std::size_t n_rows = 0;
  for (const LeasedSequence* sequence : order_) {
    // One that is ahead listens after every step, for the record that makes its guesses void.
    const bool is_ready = sequence->has_cache && sequence->can_grow() && !sequence->is_ahead() &&
                          sequence->n_pending(kv_) <= kFewBehind &&
                          !sequence->rules.depends_on_history();
    if (!is_ready) return 0;
    n_steps = std::min(n_steps, sequence->n_wanted());
    n_rows += sequence->n_pending(kv_);
  }
  if (n_rows > limits_.max_batch_rows) return 0;
  std::int64_t n_blocks = 0;
  for (const LeasedSequence* sequence : order_)
    n_blocks += kv_.blocks_needed(sequence->cache_name, sequence->n_pending(kv_) + n_steps - 1);
  return n_blocks <= kv_.free_blocks() ? n_steps - 1 : 0;
}

void DraftPass::plan_prompts() {
  const auto n_chains = static_cast<std::uint32_t>(
      std::count_if(order_.begin(), order_.end(), [&](const LeasedSequence* sequence) {
        return sequence->can_grow() && sequence->n_pending(kv_) <= kLeastPrefillRows;
      }));
  const std::chrono::duration<double> plain(cost_.seconds(std::max(1u, n_chains)));
  prompts_.begin({.n_chains = n_chains,
                  .plain = std::chrono::duration_cast<Duration>(plain),
                  .n_sequences = sequences_.size()});
}

// Beside the chains of the pass, of the same sequences; where there are none, of all.
void DraftPass::plan_branches() {
  branching_.clear();
  std::uint32_t n_others = 0;
  bool has_prompt = false;  // these come first
  for (LeasedSequence* sequence : order_) {
    n_others += sequence->n_pending(kv_);
    has_prompt = has_prompt || sequence->n_pending(kv_) > kFewBehind;
    if (sequence->may_branch()) branching_.push_back(sequence);
  }
  if (order_.empty())
    for (const auto& [key, sequence] : sequences_)
      if (sequence->may_branch()) branching_.push_back(sequence.get());
  if (has_prompt) branching_.clear();
  branches_.plan(branching_, n_others);
}

void DraftPass::extend(LeasedSequence& sequence, std::size_t slice) {
  const PlanSlice& plan = step_.plan().slices[slice];
  if (plan.n_choices == 0) {
    sequence.is_stuck = false;
    return step_.commit(slice, plan.n_known, sequence.chain.text());
  }
  const std::uint32_t n_fed = append_choices(sequence, slice, plan.n_known);
  step_.commit(slice, n_fed, sequence.chain.text());
}

// The choices after the n_fed tokens that its rows were given. Returns how many it was given then.
std::uint32_t DraftPass::append_choices(LeasedSequence& sequence,
                                        std::size_t slice,
                                        std::uint32_t n_fed) {
  for (std::uint32_t k = 0;; ++k, ++n_fed) {
    const Choice& choice = step_.chained(slice, k);
    sequence.is_stuck = choice.token < 0;
    if (sequence.is_stuck) return n_fed - 1;  // its row is asked again when something has changed
    sequence.chain.append(choice.token, guess_of(step_, slice, choice));
    sequence.has_guessed = true;
    ++counts_.n_drafted;
    if (k == step_.plan().n_ahead || !sequence.can_grow()) return n_fed;
  }
}

}  // namespace foretoken
