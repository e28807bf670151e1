#include "common/engine/draft_engine.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/engine/draft_answers.h"
#include "common/model/config.h"

namespace foretoken {
namespace {

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

// With what there is no default for made definite.
DraftEngineOptions settled(DraftEngineOptions options, const Model& model, const Backend& backend) {
  options.max_model_len = longest_text(model, options);
  options.max_chained = most_chained(model, backend, options);
  options.max_batch_rows = std::min(options.max_batch_rows, model.max_rows());
  if (options.max_sequences < 1 || options.max_batch_rows < 1)
    throw FatalError(ErrorCode::kConfig,
                     "draft.max_sequences and limits.max_batch_rows must be at least 1");
  options.prefill_chunk = std::clamp(options.prefill_chunk, 1, options.max_batch_rows);
  // Where the device takes several steps, branches cannot be chosen between them.
  if (options.max_chained > 1) options.branch_rows = 0;
  return options;
}

DraftPassLimits pass_limits(const DraftEngineOptions& options) {
  return {.max_batch_rows = static_cast<std::uint32_t>(options.max_batch_rows),
          .prefill_chunk = static_cast<std::uint32_t>(options.prefill_chunk),
          .max_chained = options.max_chained,
          .max_step = options.max_step};
}

}  // namespace

DraftEngine::DraftEngine(Model& model, Backend& backend, const DraftEngineOptions& options)
    : options_(settled(options, model, backend)),
      eos_ids_(model.config().eos_token_ids),
      n_ids_(options.n_valid_ids > 0 ? options.n_valid_ids : model.config().vocab_size),
      limits_{.max_ahead = options_.max_ahead, .max_len = options_.max_model_len},
      kv_(options_.kv),
      step_(model, backend, kv_, options_.n_valid_ids),
      branches_(kv_, step_, cost_, {.n_rows = options_.branch_rows, .max_len = limits_.max_len}),
      pass_({sequences_, kv_, step_, cost_, branches_},
            pass_limits(options_),
            equal_attention_context(model.config())) {}

bool DraftEngine::has_work() const {
  // Beside no chain at all branches are worth a pass where rows beside one cost hardly anything.
  const bool may_have_branches = branches_.may_have_passes_alone();
  return std::any_of(sequences_.begin(), sequences_.end(), [&](const auto& entry) {
    const LeasedSequence& sequence = *entry.second;
    return sequence.owes_answer || sequence.wants_rows(kv_) ||
           (may_have_branches && sequence.may_branch() && branches_.wants_rows(sequence));
  });
}

const DraftOutput& DraftEngine::step(TimePoint now) {
  std::vector<ReadyProposal>& sent = output_.proposals;
  sent.clear();
  output_.busy.clear();
  output_.n_rows = output_.n_steps = output_.n_drafted = 0;
  expire(now);
  for (const auto& [key, sequence] : sequences_) answer_overtaken(*sequence, sent);
  if (!sent.empty()) return output_;  // these have waited a whole round
  // A chain that went on may hold the answer already.
  for (const auto& [key, sequence] : sequences_)
    if (sequence->run_ahead > 0) answer_if_complete(*sequence, sent);
  if (!sent.empty()) return output_;
  run_pass(now);
  for (const auto& [key, sequence] : sequences_) answer_if_complete(*sequence, sent);
  for (const auto& [key, sequence] : sequences_) send_news(*sequence, sent);
  return output_;
}

void DraftEngine::run_pass(TimePoint now) {
  const DraftPassCounts ran = pass_.run();
  for (LeasedSequence* sequence : pass_.lost_blocks()) {
    sequence->busy_until = now + options_.retry_after;
    output_.busy.push_back({sequence->key.target, busy(*sequence, options_.retry_after)});
  }
  output_.n_rows = ran.n_rows;
  output_.n_steps = ran.n_steps;
  output_.n_drafted = ran.n_drafted;
  totals_.n_steps += ran.n_steps;
  totals_.n_rows += ran.n_rows;
  totals_.n_drafted += ran.n_drafted;
}

void DraftEngine::record_step_time(Duration took) {
  if (output_.n_rows > 0) pass_.record_time(took);
}

DraftSnapshot DraftEngine::snapshot() const {
  DraftSnapshot snapshot = totals_;
  snapshot.n_attached = static_cast<std::uint32_t>(sequences_.size());
  for (const auto& [key, sequence] : sequences_) {
    if (sequence->wants_rows(kv_)) ++snapshot.n_behind;
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
