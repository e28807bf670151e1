#include "common/engine/target_engine.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/base/check.h"
#include "common/model/config.h"

namespace foretoken {
namespace {

// Logits of rows with a forced choice, which may be as many as a pass has rows, take no more.
constexpr std::int32_t kForcedLogitsBytes = 64 << 20;

KvCacheConfig checked(const KvCacheConfig& kv, Position max_model_len) {
  const auto per_block = static_cast<Position>(kv.block_tokens);
  const Position n_needed = (max_model_len + per_block - 1) / per_block;
  if (static_cast<Position>(kv.n_blocks) < n_needed)
    throw FatalError(ErrorCode::kConfig, "the KV cache has " + std::to_string(kv.n_blocks) +
                                             " blocks; one sequence of " +
                                             std::to_string(max_model_len) +
                                             " tokens (model.max_model_len) needs " +
                                             std::to_string(n_needed) + "; raise kv_cache.memory");
  return kv;
}

TargetEngineOptions completed(TargetEngineOptions options, const Model& model) {
  const auto model_limit = static_cast<Position>(model.config().max_model_len);
  if (options.max_model_len == 0) options.max_model_len = model_limit;
  if (options.max_model_len > model_limit)
    throw FatalError(ErrorCode::kConfig, "model.max_model_len is " +
                                             std::to_string(options.max_model_len) +
                                             "; the model was loaded for " +
                                             std::to_string(model_limit) + " positions");
  options.max_batch_rows = std::min(options.max_batch_rows, model.max_rows());
  if (options.max_running > options.max_batch_rows)
    throw FatalError(ErrorCode::kConfig,
                     "limits.max_running is " + std::to_string(options.max_running) +
                         "; it must be at most limits.max_batch_rows, which is " +
                         std::to_string(options.max_batch_rows));
  options.prefill_chunk = std::clamp(options.prefill_chunk, 1, options.max_batch_rows);
  if (options.max_forced_rows == 0)
    options.max_forced_rows = std::max(1, kForcedLogitsBytes / 4 / model.config().vocab_size);
  return options;
}

}  // namespace

TargetEngine::TargetEngine(Model& model,
                           Backend& backend,
                           const Proposers& proposers,
                           const TargetEngineOptions& options)
    : model_(model),
      watch_(proposers.watch),
      memory_watch_(proposers.memory_watch),
      options_(completed(options, model)),
      limits_{.max_rows = options_.max_batch_rows,
              .prefill_chunk = options_.prefill_chunk,
              .max_forced_rows = options_.max_forced_rows,
              .max_running = options_.max_running,
              .n_blocks = options_.kv.n_blocks,
              .block_tokens = options_.kv.block_tokens,
              .policy = options_.policy,
              .max_step = options_.max_step},
      kv_(checked(options_.kv, options_.max_model_len)),
      step_(model, backend, kv_, options_.n_valid_ids),
      store_(n_ids()),
      length_(options_.draft_length),
      budget_(outcomes_),
      wait_(length_, outcomes_, options_.wait_limit),
      prefill_(equal_attention_context(model.config())) {
  for (Proposer* proposer : proposers.each) {
    Proposer*& place = proposers_[static_cast<std::size_t>(proposer->kind())];
    FORETOKEN_CHECK(place == nullptr, "two proposers of one kind");
    place = proposer;
  }
}

TargetEngine::~TargetEngine() = default;

TokenId TargetEngine::n_ids() const {
  return options_.n_valid_ids > 0 ? options_.n_valid_ids : model_.config().vocab_size;
}

Proposer* TargetEngine::proposer_of(ProposerKind kind) const {
  return proposers_[static_cast<std::size_t>(kind)];
}

bool TargetEngine::has_work() const {
  return !sequences_.empty() || !ended_.empty() || !broken_.empty();
}

void TargetEngine::verify(TimePoint now) {
  output_.prompts.clear();
  output_.tokens.clear();
  output_.n_rows = output_.n_committed = output_.n_verified = 0;
  output_.n_accepted = output_.n_sequences = 0;
  committed_value_ = undrafted_value_ = 0;
  step_began_ = now;
  if (std::exchange(is_next_at_once_, false)) pause_cost_.observe(n_decoded_, now - step_ended_);
  collect(now);
  if (lookup_wait_.is_waiting())
    length_.observe_wait(lookup_wait_.end(is_any_lookup_owed(now), now));
  const bool is_owed = is_whole_answer_owed(now);
  const Duration waited = wait_.end(is_owed, now);
  if (!is_prefilling_ && !gate_.is_probing()) {
    if (is_owed)
      budget_.observe_owed();
    else
      budget_.observe_wait(waited, n_to_make_);
  }
  make_plan(now);
  cut_proposals();
  fill_step();
  if (step_.n_slices() > 0) step_.run();
}

const StepOutput& TargetEngine::commit() {
  const TimePoint now = step_began_;
  if (step_.n_slices() > 0) {
    ++totals_.n_steps;
    output_.n_rows = static_cast<std::uint32_t>(step_.plan().tokens.size());
    totals_.n_rows += output_.n_rows;
    for (Sequence* sequence : in_step_) sequence->last_pass = totals_.n_steps;
    n_decoded_ = static_cast<std::uint32_t>(in_step_.size());
    output_.n_sequences = n_decoded_;
    for (std::size_t i = 0; i < in_step_.size(); ++i) commit_slice(i, *in_step_[i], now);
    totals_.n_tokens += output_.n_committed;
    is_timed_ = false;
    is_next_at_once_ = !running_.empty();
  }
  step_.begin();
  is_prefilling_ =
      std::ranges::any_of(running_, [](const Sequence* s) { return !s->is_decoding; }) ||
      std::ranges::any_of(waiting_, [](const Sequence* s) { return s->waits_for_prefix; });
  ask_all(now);
  output_.done.clear();
  output_.failed.clear();
  std::swap(output_.done, ended_);
  std::swap(output_.failed, broken_);
  return output_;
}

void TargetEngine::record_step_time(Duration took) {
  if (is_timed_) return;
  is_timed_ = true;
  last_took_ = took;
  prefill_.observe(prompt_work_, schedule_.most_work, schedule_.planned, took);
  const auto n_rows = output_.n_rows + static_cast<std::uint32_t>(attention_rows_);
  length_.observe_step(n_rows, output_.n_committed, took);
  const std::chrono::duration<double> pause(pause_cost_.seconds(n_decoded_));
  pass_cost_.observe(n_rows, took + std::chrono::duration_cast<Duration>(pause));
  note_yield(took);
}

void TargetEngine::collect(TimePoint now) {
  for (Proposer* proposer : proposers_)
    if (proposer != nullptr) proposer->collect(now, store_);
  for (Sequence* sequence : running_) {
    sequence->path.clear();
    sequence->lacked_room = false;
    const bool may_have = sequence->is_decoding && !sequence->proposers.empty();
    const std::uint32_t cap = may_have ? sequence->proposal_cap() : 0;
    if (cap > 0) sequence->path = best_path(*sequence, cap);
    sequence->limit(sequence->path);
    note_undrafted_path(*sequence, cap);
    sequence->path.resize(sequence->rules.n_allowed(sequence->path));
    sequence->had_path = !sequence->path.empty();
  }
}

const std::vector<PathToken>& TargetEngine::best_path(const Sequence& sequence,
                                                      std::uint32_t n) const {
  const PathQuery query{.seq = sequence.id, .n = n, .odds = sequence.odds.factor()};
  return sequence.paths.best(query, store_, length_.calibration());
}

TargetSnapshot TargetEngine::snapshot() const {
  TargetSnapshot snapshot = totals_;
  snapshot.n_running = static_cast<std::uint32_t>(running_.size());
  snapshot.n_waiting = static_cast<std::uint32_t>(waiting_.size());
  for (const Sequence* sequence : waiting_)
    if (sequence->waits_for_prefix)
      ++snapshot.n_held_back;
    else
      snapshot.n_waiting_tokens += sequence->n_tokens();
  snapshot.kv = kv_.stats();
  return snapshot;
}

}  // namespace foretoken
