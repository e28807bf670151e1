#include "common/engine/target_engine.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/check.h"
#include "common/model/config.h"
#include "common/spec/acceptance.h"
#include "common/spec/finish.h"

namespace foretoken {
namespace {

// Logits of rows with a forced choice, which may be as many as a pass has rows, take no more.
constexpr std::int32_t kForcedLogitsBytes = 64 << 20;

TokenLogprobs logprobs_of(const Choice& choice, std::span<const TopLogprob> likeliest) {
  TokenLogprobs logprobs{.logprob = choice.logprob};
  for (const TopLogprob& top : likeliest) {
    logprobs.top_ids.push_back(top.token);
    logprobs.top_logprobs.push_back(top.logprob);
  }
  return logprobs;
}

Error no_token_may_follow(const Sequence& sequence) {
  const std::string_view grammar = constraint_key(sequence.params);
  if (grammar.empty())
    return {
        ErrorCode::kInvalidValue,
        "no token may follow: logit_bias, bad_words and min_tokens exclude the whole vocabulary",
        "logit_bias"};
  return {ErrorCode::kInvalidValue,
          "no token may follow: " + std::string(grammar) +
              ", logit_bias, bad_words and min_tokens exclude the whole vocabulary",
          std::string(grammar)};
}

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

// ---- waiting for proposals ----

DraftOutlook TargetEngine::outlook(const Sequence& sequence, TimePoint now) const {
  if (proposer_of(ProposerKind::kDraft) == nullptr) return {};
  if (watch_ == nullptr) return {.readiness = DraftReadiness::kReady};
  return watch_->outlook(sequence.id, now);
}

// A ready draft owes the sequence an answer, and what is at hand already does not do without it.
std::optional<DraftOutlook> TargetEngine::owed(const Sequence& sequence, TimePoint now) const {
  const std::uint32_t cap = most_asked(sequence);
  if (!sequence.proposers.contains(ProposerKind::kDraft) || !sequence.is_decoding || cap == 0)
    return {};
  const DraftOutlook draft = outlook(sequence, now);
  if (draft.readiness != DraftReadiness::kReady || !draft.is_under_way) return {};
  const std::uint32_t wanted = budget_of(sequence);
  const std::vector<PathToken>& path = best_path(sequence, wanted);
  // What others say in its place is no reason to go on without the draft, unless it is sure.
  const bool is_said = path.size() >= wanted && path.back().sources.contains(ProposerKind::kDraft);
  if (is_said || length_.is_plenty(path, wanted, sequence.odds.factor())) return {};
  return draft;
}

Duration TargetEngine::wait_hint(TimePoint now) {
  Duration longest = longest_wait(now);
  if (longest == Duration::zero())
    longest = lookup_wait(now);  // a longer wait is long enough for them
  if (longest > Duration::zero()) is_next_at_once_ = false;
  return longest;
}

Duration TargetEngine::longest_wait(TimePoint now) {
  for (Sequence* sequence : running_) sequence->n_awaited = 0;
  Proposer* proposer = proposer_of(ProposerKind::kDraft);
  if (is_prefilling_ || proposer == nullptr) return {};
  proposer->collect(now, store_);
  const auto n_running = static_cast<std::uint32_t>(running_.size());
  std::vector<Expected> expected;
  std::vector<Sequence*> whose;
  bool is_any_fixed = false;
  for (Sequence* sequence : running_) {
    const auto draft = owed(*sequence, now);
    const bool is_fixed = sequence->length == LengthMode::kFixed;
    if (!draft || (!is_fixed && gate_.is_probing())) continue;
    is_any_fixed = is_any_fixed || is_fixed;
    sequence->n_awaited = budget_of(*sequence);
    expected.push_back(expected_of(*sequence, *draft));
    whose.push_back(sequence);
  }
  if (is_any_fixed) return wait_.begin_longest(n_running, now);
  const WaitFor best = wait_.begin(std::move(expected), n_running, now);
  for (std::size_t k = 0; k < best.n_tokens.size(); ++k) whose[k]->n_awaited = best.n_tokens[k];
  return best.wait;
}

Expected TargetEngine::expected_of(const Sequence& sequence, const DraftOutlook& draft) const {
  const std::uint32_t wanted = budget_of(sequence);
  const std::vector<PathToken>& path = best_path(sequence, wanted);
  const std::uint32_t n_at_hand = n_drafted(path);
  return {.arrives_in = n_at_hand > 0 && draft.is_stream() ? draft.next_in : draft.arrives_in,
          .per_token = draft.per_token,
          .n_at_hand = n_at_hand,
          .holds = std::pow(outcomes_.rate_at(0), draft.n_unseen),
          .n_in_all = std::max(n_at_hand, draft.is_stream() ? wanted : sequence.n_asked),
          .at_hand = length_.worth(path, sequence.odds.factor()),
          .value = token_value(sequence),
          .odds = sequence.odds.factor()};
}

// Those alone say what an answer takes: a stream is at its next token always.
bool TargetEngine::is_whole_answer_owed(TimePoint now) const {
  return std::any_of(running_.begin(), running_.end(), [&](const Sequence* sequence) {
    if (sequence->length != LengthMode::kAdaptive) return false;
    const auto draft = owed(*sequence, now);
    return draft && !draft->is_stream();
  });
}

bool TargetEngine::proposals_complete(TimePoint now) {
  if (lookup_wait_.is_waiting()) {
    proposer_of(ProposerKind::kMemory)->collect(now, store_);
    return !is_any_lookup_owed(now);
  }
  if (Proposer* draft = proposer_of(ProposerKind::kDraft)) draft->collect(now, store_);
  return std::none_of(running_.begin(), running_.end(), [&](const Sequence* sequence) {
    if (sequence->n_awaited == 0) return false;
    const auto draft = owed(*sequence, now);
    if (!draft) return false;
    return !draft->is_stream() ||
           n_drafted(best_path(*sequence, budget_of(*sequence))) < sequence->n_awaited;
  });
}

// ---- a step ----

void TargetEngine::verify(TimePoint now) {
  output_.prompts.clear();
  output_.tokens.clear();
  output_.n_rows = output_.n_committed = output_.n_verified = 0;
  output_.n_accepted = output_.n_sequences = 0;
  committed_value_ = 0;
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
  is_prefilling_ = std::any_of(running_.begin(), running_.end(),
                               [](const Sequence* s) { return !s->is_decoding; });
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
    sequence->path.resize(sequence->rules.n_allowed(sequence->path));
    sequence->had_path = !sequence->path.empty();
  }
}

// The tokens that it can end with.
std::uint32_t TargetEngine::n_longest(const Sequence& sequence) const {
  return std::min(sequence.n_tokens() + sequence.finish.n_remaining(), options_.max_model_len);
}

SequenceView TargetEngine::view_of(const Sequence& sequence,
                                   std::uint32_t index,
                                   bool blocks_are_scarce) const {
  SequenceView view{.index = index,
                    .flow = sequence.flow_index,
                    .last_pass = sequence.last_pass,
                    .n_tokens = sequence.n_tokens(),
                    .n_longest = n_longest(sequence),
                    .n_forced = sequence.owes_prompt() ? sequence.n_prompt - 1 : 0,
                    .deadline = sequence.deadline};
  if (!sequence.is_running) return view;
  view.n_cached = kv_.length(sequence.id);
  view.n_wanted =
      std::min(static_cast<std::uint32_t>(sequence.path.size()), most_proposals(sequence));
  view.n_blocks = static_cast<std::int32_t>(kv_.block_table(sequence.id).size());
  // Blocks are shared only as whole prefixes, so what one more position takes beyond the table is a
  // copy of the tail.
  view.copies_tail =
      kv_.blocks_needed(sequence.id, 1) > blocks_wanted(view, 1, limits_.block_tokens);
  if (blocks_are_scarce) view.n_returned = kv_.blocks_held_alone(sequence.id);
  return view;
}

PassCosts TargetEngine::pass_costs() const {
  const auto n_decoding = static_cast<std::uint32_t>(std::count_if(
      running_.begin(), running_.end(), [](const Sequence* s) { return s->is_decoding; }));
  const std::chrono::duration<double> plain(length_.step_cost().seconds(std::max(1u, n_decoding)));
  return {.prefill = prefill_.rates(),
          .plain = std::chrono::duration_cast<Duration>(plain),
          .flow_rows = flow_rows_};
}

void TargetEngine::make_plan(TimePoint now) {
  running_views_.clear();
  waiting_views_.clear();
  handles_.clear();
  share_flows();
  const std::int32_t n_free = kv_.free_blocks();
  const bool scarce = n_free < limits_.max_rows / limits_.block_tokens +
                                   2 * static_cast<std::int32_t>(running_.size()) + 1;
  auto index = [&](Sequence* sequence) {
    handles_.push_back(sequence);
    return static_cast<std::uint32_t>(handles_.size() - 1);
  };
  for (Sequence* sequence : running_)
    running_views_.push_back(view_of(*sequence, index(sequence), scarce));
  for (Sequence* sequence : waiting_)
    waiting_views_.push_back(view_of(*sequence, index(sequence), scarce));
  make_schedule(limits_, pass_costs(), running_views_, waiting_views_, n_free, now, schedule_);
  for (const std::uint32_t expired : schedule_.expired)
    finish(*handles_[expired], FinishReason::kDeadline);
  for (const std::uint32_t preempted : schedule_.preempted) preempt(*handles_[preempted]);
  for (const ScheduledRows& rows : schedule_.rows)
    if (rows.admitted) admit(*handles_[rows.index], now);
}

void TargetEngine::admit(Sequence& sequence, TimePoint now) {
  // Rows that are to choose must run, and the cache has no logits: what it has of them is not used.
  const auto usable = sequence.owes_prompt() ? sequence.text().tokens().first(sequence.next_forced)
                                             : sequence.text().tokens();
  auto hit = kv_.open(sequence.id, usable, sequence.tenant_salt);
  FORETOKEN_CHECK(hit.ok());
  if (!sequence.was_admitted) {  // a clock may begin at zero, so the time does not tell
    sequence.was_admitted = true;
    sequence.stats.admitted = now;
    sequence.stats.n_cached = std::min(*hit, sequence.n_prompt);
    open_proposers(sequence);
  }
  sequence.is_running = true;
  sequence.is_decoding = false;
  std::erase(waiting_, &sequence);
  insert_in_turn(running_, &sequence);
}

void TargetEngine::preempt(Sequence& sequence) {
  kv_.close(sequence.id);
  sequence.is_running = sequence.is_decoding = false;
  ++sequence.stats.n_preemptions;
  ++totals_.n_preemptions;
  std::erase(running_, &sequence);
  insert_in_turn(waiting_, &sequence);
}

// What was granted rows is cut once more to what is worth verifying. Requests with a fixed length
// are not asked.
void TargetEngine::cut_proposals() {
  candidates_.clear();
  std::uint32_t other_rows = 0;
  std::uint32_t max_drafted = 0;
  auto is_judged = [&](const ScheduledRows& rows) {
    const Sequence& sequence = *handles_[rows.index];
    return sequence.is_decoding && sequence.length == LengthMode::kAdaptive;
  };
  for (const ScheduledRows& rows : schedule_.rows) {
    Sequence& sequence = *handles_[rows.index];
    sequence.lacked_room = sequence.had_path && rows.n_proposed == 0;
    sequence.path.resize(std::min<std::size_t>(sequence.path.size(), rows.n_proposed));
    if (is_judged(rows)) {
      candidates_.push_back({.path = sequence.path,
                             .cap = rows.n_proposed,
                             .value = token_value(sequence),
                             .odds = sequence.odds.factor()});
      max_drafted += rows.n_proposed;
    } else {
      const double work = prefill_.rates().work(kv_.length(sequence.id), rows.n_known);
      other_rows += (sequence.is_decoding ? rows.n_known : static_cast<std::uint32_t>(work)) +
                    rows.n_proposed;
    }
  }
  if (candidates_.empty()) return;
  const std::vector<std::uint32_t> lengths = length_.cut(candidates_, other_rows, max_drafted);
  std::size_t i = 0;
  for (const ScheduledRows& rows : schedule_.rows)
    if (is_judged(rows)) handles_[rows.index]->path.resize(lengths[i++]);
}

void TargetEngine::fill_step() {
  step_.begin();
  in_step_.clear();
  for (const ScheduledRows& rows : schedule_.rows) {
    Sequence& sequence = *handles_[rows.index];
    if (add_slice(rows, sequence)) in_step_.push_back(&sequence);
  }
  note_prompt_work();
  // The plan counts blocks as if no prompt were shared; where that was wrong for all,
  // the youngest yields.
  if (in_step_.empty() && !schedule_.rows.empty()) {
    FORETOKEN_CHECK(running_.size() > 1, "one sequence alone does not fit the cache");
    preempt(*running_.back());
  }
}

void TargetEngine::note_prompt_work() {
  prompt_work_ = attention_rows_ = 0;
  for (std::size_t i = 0; i < in_step_.size(); ++i) {
    if (in_step_[i]->is_decoding) continue;
    const PlanSlice& slice = step_.plan().slices[i];
    const double work = prefill_.rates().work(slice.start, slice.n_known);
    prompt_work_ += work;
    attention_rows_ += work - slice.n_known;
  }
}

// The plan took an admitted prompt for one of which nothing is cached. What attention to the part
// that is costs more comes off its rows.
std::uint32_t TargetEngine::rows_in_time(const ScheduledRows& rows, Position start) const {
  if (!rows.admitted || limits_.max_step <= Duration::zero()) return rows.n_known;
  const PrefillRates& rates = prefill_.rates();
  const double planned = rates.work(0, rows.n_known);
  return std::clamp(rates.rows_within(planned, start), 1u, rows.n_known);
}

bool TargetEngine::add_slice(const ScheduledRows& rows, Sequence& sequence) {
  const Position start = kv_.length(sequence.id);
  const std::uint32_t n_known = std::min(rows_in_time(rows, start), sequence.n_tokens() - start);
  const bool samples = start + n_known == sequence.n_tokens() && !sequence.finish.reason();
  drafted_.clear();
  if (samples)
    for (const PathToken& token : sequence.path) drafted_.push_back(token.token);
  SliceRequest request{.seq = sequence.id,
                       .known = sequence.text().tokens().subspan(start, n_known),
                       .proposed = drafted_,
                       .rules = samples ? &sequence.rules : nullptr};
  if (sequence.owes_prompt()) {
    const Position end = std::min<Position>(start + n_known + 1, sequence.n_prompt);
    if (sequence.next_forced < end) {
      const auto tokens = sequence.text().tokens().first(end);
      request.forced = tokens.subspan(sequence.next_forced);
      request.first_forced = sequence.next_forced - 1 - start;
      request.n_forced_top = sequence.params.n_prompt_logprobs;
    }
  }
  if (step_.add(request).ok()) return true;
  sequence.path.clear();
  sequence.lacked_room = sequence.had_path;
  request.proposed = {};
  return step_.add(request).ok();
}

// ---- committing ----

void TargetEngine::commit_slice(std::size_t slice, Sequence& sequence, TimePoint now) {
  const PlanSlice& plan = step_.plan().slices[slice];
  if (!sequence.is_decoding) totals_.n_prompt_rows += plan.n_known;
  if (plan.n_forced > 0) deliver_prompt(slice, sequence);
  if (plan.n_choices == 0) {
    step_.commit(slice, plan.n_known, sequence.text().tokens());
    if (const auto reason = sequence.end()) finish(sequence, *reason);
    return;
  }
  const std::uint32_t n_accepted = step_.n_accepted(slice);
  const Acceptance verdict{n_accepted, step_.chosen(slice).first(n_accepted + 1)};
  const std::uint32_t n_before = sequence.n_tokens();
  ++sequence.stats.n_steps;
  deliver(slice, sequence, verdict.committed, verdict.n_accepted);
  const std::uint32_t n_delivered = sequence.n_tokens() - n_before;
  step_.commit(slice, plan.n_known + std::min(verdict.n_accepted, n_delivered),
               sequence.text().tokens());
  note_round(sequence, verdict.n_accepted, n_delivered, now);
  sequence.is_decoding = true;
  output_.n_committed += n_delivered;
  committed_value_ += token_value(sequence) * n_delivered;

  if (const auto reason = sequence.finish.reason()) return finish(sequence, *reason);
  if (n_delivered < verdict.committed.size()) return fail(sequence, no_token_may_follow(sequence));
  store_.drop_committed(sequence.id);
}

void TargetEngine::deliver_prompt(std::size_t slice, Sequence& sequence) {
  const auto choices = step_.forced(slice);
  wire::Tokens tokens{.position = sequence.next_forced};
  for (std::size_t i = 0; i < choices.size(); ++i) {
    tokens.ids.push_back(sequence.text().tokens()[sequence.next_forced++]);
    tokens.logprobs.push_back(logprobs_of(choices[i], step_.forced_top(slice, i)));
  }
  output_.prompts.push_back({sequence.id, std::move(tokens)});
}

// Token by token through the finish rules, as plain decoding would; what lies behind an end is
// dropped.
void TargetEngine::deliver(std::size_t slice,
                           Sequence& sequence,
                           std::span<const TokenId> committed,
                           std::uint32_t n_accepted) {
  wire::Tokens tokens{.position = sequence.n_tokens()};
  tokens.ids.reserve(committed.size());
  tokens.accepted.reserve(committed.size());
  const auto choices = step_.choices(slice);
  for (std::size_t i = 0; i < committed.size() && committed[i] >= 0; ++i) {
    tokens.ids.push_back(committed[i]);
    tokens.accepted.push_back(i < n_accepted ? 1 : 0);
    if (sequence.params.n_logprobs >= 0)
      tokens.logprobs.push_back(logprobs_of(choices[i], step_.top(slice, i)));
    if (sequence.commit(committed[i])) break;
  }
  if (!tokens.ids.empty()) output_.tokens.push_back({sequence.id, std::move(tokens)});
}

void TargetEngine::note_round(Sequence& sequence,
                              std::uint32_t n_accepted,
                              std::uint32_t n_delivered,
                              TimePoint now) {
  sequence.n_verified = static_cast<std::uint32_t>(sequence.path.size());
  sequence.n_accepted = n_accepted;
  note_proposals(sequence, store_.score(sequence.id, sequence.n_tokens() - n_delivered));
  note_lookups(sequence, std::min(n_accepted, n_delivered));
  output_.n_verified += sequence.n_verified;
  if (sequence.n_verified > 0) {
    const std::uint32_t n_kept = std::min(n_accepted, n_delivered);
    output_.n_accepted += n_kept;
    sequence.stats.spec.record_round(sequence.path, n_kept);
    sequence.stats.record_length(sequence.n_verified, n_kept);
    totals_.spec.record_round(sequence.path, n_kept);
  } else if (sequence.is_decoding && sequence.finish.n_remaining() > 0) {  // not the last token's
    const FallbackReason reason = why_plain(sequence, now);
    sequence.stats.spec.record_fallback(reason);
    totals_.spec.record_fallback(reason);
  }
}

const std::vector<PathToken>& TargetEngine::best_path(const Sequence& sequence,
                                                      std::uint32_t n) const {
  const PathQuery query{.seq = sequence.id, .n = n, .odds = sequence.odds.factor()};
  return sequence.paths.best(query, store_, length_.calibration());
}

void TargetEngine::note_proposals(Sequence& sequence, std::span<const ScoredToken> scored) {
  length_.observe_round(scored, sequence.odds);
  note_draft_tokens(scored);
  for (const ScoredToken& each : scored) {
    if (each.token.is_runner_up && !each.stood) continue;
    each.token.sources.for_each([&](ProposerKind kind) {
      ProposalTally& tally = totals_.proposals[static_cast<std::size_t>(kind)];
      ++(each.stood ? tally.n_right : tally.n_wrong);
    });
    if (each.token.sources.size() > 1) ++totals_.n_agreed;
  }
}

// A depth may have several tokens of a draft, of which one stands at most.
void TargetEngine::note_draft_tokens(std::span<const ScoredToken> scored) {
  for (std::size_t begin = 0, end = 0; begin < scored.size(); begin = end) {
    bool was_drafted = false, stood = false;
    for (; end < scored.size() && scored[end].depth == scored[begin].depth; ++end) {
      const PathToken& token = scored[end].token;
      if (token.is_runner_up || !token.sources.contains(ProposerKind::kDraft)) continue;
      was_drafted = true;
      stood = stood || scored[end].stood;
    }
    if (!was_drafted) continue;
    outcomes_.observe(scored[begin].depth, stood);
    if (scored[begin].depth == 0) budget_.observe_answer();
  }
}

TargetSnapshot TargetEngine::snapshot() const {
  TargetSnapshot snapshot = totals_;
  snapshot.n_running = static_cast<std::uint32_t>(running_.size());
  snapshot.n_waiting = static_cast<std::uint32_t>(waiting_.size());
  for (const Sequence* sequence : waiting_) snapshot.n_waiting_tokens += sequence->n_tokens();
  snapshot.kv = kv_.stats();
  return snapshot;
}

}  // namespace foretoken
