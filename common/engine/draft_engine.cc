#include "common/engine/draft_engine.h"

#include <algorithm>
#include <memory>

#include "common/base/check.h"
#include "common/engine/leased_sequence.h"
#include "common/engine/runners_up.h"
#include "common/model/config.h"

namespace foretoken {
namespace {

// A sequence of which no guesses are wanted is brought up to date only when that fills a pass of
// some size: the rows cost little together, and a draft that shares its cores with the target
// should be quiet when it is not wanted.
constexpr std::uint32_t kIdleCatchUp = 32;

Position longest_text(const Model& model, const DraftEngineOptions& options) {
  const auto of_model = static_cast<Position>(model.config().max_model_len);
  return options.max_model_len == 0 ? of_model : std::min(options.max_model_len, of_model);
}

// Ranks choose on the host, so there they are asked step by step.
std::uint32_t most_chained(const Model& model,
                           const Backend& backend,
                           const DraftEngineOptions& options) {
  if (model.ranks() != nullptr) return 1;
  if (options.max_chained > 0) return options.max_chained;
  return backend.gains_by_recording() ? options.max_ahead : 1;
}

}  // namespace

DraftEngine::DraftEngine(Model& model, Backend& backend, const DraftEngineOptions& options)
    : options_(options),
      eos_ids_(model.config().eos_token_ids),
      max_len_(longest_text(model, options)),
      max_chained_(most_chained(model, backend, options)),
      kv_(options.kv),
      step_(model, backend, kv_, options.n_valid_ids),
      prefill_(equal_attention_context(model.config())),
      // Where the device takes several steps, branches cannot be chosen between them.
      branches_(kv_,
                step_,
                cost_,
                {.n_rows = max_chained_ > 1 ? 0 : options.branch_rows, .max_len = max_len_}) {
  n_ids_ = options.n_valid_ids > 0 ? options.n_valid_ids : model.config().vocab_size;
  options_.max_batch_rows = std::min(options_.max_batch_rows, model.max_rows());
  if (options_.max_sequences < 1 || options_.max_batch_rows < 1)
    throw FatalError(ErrorCode::kConfig,
                     "draft.max_sequences and limits.max_batch_rows must be at least 1");
  options_.prefill_chunk = std::clamp(options_.prefill_chunk, 1, options_.max_batch_rows);
}

DraftEngine::~DraftEngine() = default;

// ---- guessing ----

// How long its chain may become: what was asked for, and beyond that once it has been answered.
std::uint32_t DraftEngine::chain_limit(const LeasedSequence& sequence) const {
  if (sequence.owes_answer || sequence.budget == 0) return sequence.budget;
  return std::max(sequence.budget,
                  std::min(sequence.budget + sequence.run_ahead, options_.max_ahead));
}

// What it guesses now was not asked for: everything else comes first.
bool DraftEngine::is_ahead(const LeasedSequence& sequence) const {
  return !sequence.owes_answer && sequence.budget > 0 && sequence.run_ahead > 0;
}

bool DraftEngine::can_grow(const LeasedSequence& sequence) const {
  const DraftChain& chain = sequence.chain;
  if (sequence.is_stuck || chain.is_outgrown() || chain.n_guesses() >= chain_limit(sequence) ||
      chain.length() >= max_len_)
    return false;
  const bool has_ended =
      chain.n_guesses() > 0 && std::ranges::binary_search(sequence.endings, chain.text().back());
  return !has_ended;
}

std::uint32_t DraftEngine::n_pending(const LeasedSequence& sequence) const {
  const Position n_cached = sequence.has_cache ? kv_.length(sequence.cache_name) : 0;
  return sequence.chain.length() - n_cached;
}

bool DraftEngine::wants_rows(const LeasedSequence& sequence) const {
  if (can_grow(sequence)) return true;
  if (sequence.budget > 0 || sequence.chain.is_outgrown()) return false;
  return (sequence.has_cache || sequence.is_fresh) && n_pending(sequence) > kIdleCatchUp;
}

bool DraftEngine::has_work() const {
  // Beside no chain at all branches are worth a pass where rows beside one cost hardly anything.
  const bool may_have_branches = branches_.may_have_passes_alone();
  return std::any_of(sequences_.begin(), sequences_.end(), [&](const auto& entry) {
    return entry.second->owes_answer || wants_rows(*entry.second) ||
           (may_have_branches && may_branch(*entry.second) && branches_.wants_rows(*entry.second));
  });
}

const DraftOutput& DraftEngine::step(TimePoint now) {
  output_.proposals.clear();
  output_.busy.clear();
  output_.n_rows = output_.n_steps = output_.n_drafted = 0;
  expire(now);
  if (emit_overtaken()) return output_;  // these have waited a whole round
  emit_held();
  if (!output_.proposals.empty()) return output_;
  fill_step(now);
  if (step_.n_slices() > 0) {
    step_.run();
    for (std::size_t i = 0; i < in_step_.size(); ++i) extend(*in_step_[i], i);
    branches_.extend();
    output_.n_rows = static_cast<std::uint32_t>(step_.plan().tokens.size());
    output_.n_steps = 1 + step_.plan().n_ahead;
    output_.n_rows += step_.plan().n_ahead * static_cast<std::uint32_t>(step_.n_slices());
    totals_.n_steps += output_.n_steps;
    totals_.n_rows += output_.n_rows;
    totals_.n_drafted += output_.n_drafted;
  }
  step_.begin();
  emit_ready();
  emit_ahead();
  return output_;
}

void DraftEngine::extend(LeasedSequence& sequence, std::size_t slice) {
  const PlanSlice& plan = step_.plan().slices[slice];
  if (plan.n_choices == 0) {
    sequence.is_stuck = false;
    return step_.commit(slice, plan.n_known, sequence.chain.text());
  }
  const std::uint32_t n_fed = append_choices(sequence, slice, plan.n_known);
  step_.commit(slice, n_fed, sequence.chain.text());
}

// The choices after the n_fed tokens that its rows were given. Returns how many it was given then.
std::uint32_t DraftEngine::append_choices(LeasedSequence& sequence,
                                          std::size_t slice,
                                          std::uint32_t n_fed) {
  for (std::uint32_t k = 0;; ++k, ++n_fed) {
    const Choice& choice = step_.chained(slice, k);
    sequence.is_stuck = choice.token < 0;
    if (sequence.is_stuck) return n_fed - 1;  // its row is asked again when something has changed
    sequence.chain.append(choice.token, guess_of(step_, slice, choice));
    sequence.has_guessed = true;
    ++output_.n_drafted;
    if (k == step_.plan().n_ahead || !can_grow(sequence)) return n_fed;
  }
}

DraftSnapshot DraftEngine::snapshot() const {
  DraftSnapshot snapshot = totals_;
  snapshot.n_attached = static_cast<std::uint32_t>(sequences_.size());
  for (const auto& [key, sequence] : sequences_) {
    if (wants_rows(*sequence)) ++snapshot.n_behind;
    snapshot.n_remembered += sequence->chain.length();
  }
  const BranchStats& branches = branches_.stats();
  snapshot.n_branches = branches.n_begun;
  snapshot.n_branches_taken = branches.n_taken;
  snapshot.n_branch_tokens = branches.n_tokens;
  snapshot.kv = kv_.stats();
  return snapshot;
}

}  // namespace foretoken
