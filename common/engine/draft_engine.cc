#include "common/engine/draft_engine.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "common/base/check.h"
#include "common/engine/leased_sequence.h"
#include "common/model/config.h"

namespace foretoken {
namespace {

// A sequence of which no guesses are wanted is brought up to date only when that fills a pass of
// some size: the rows cost little together, and a draft that shares its cores with the target
// should be quiet when it is not wanted.
constexpr std::uint32_t kIdleCatchUp = 32;
// Passes are not cut shorter than this for the sake of chains.
constexpr Duration kShortestPass = std::chrono::milliseconds(1);

}  // namespace

std::uint8_t confidence_byte(float logprob) {
  const float p = std::exp(logprob);
  return static_cast<std::uint8_t>(std::lround(255.0f * std::clamp(p, 0.0f, 1.0f)));
}

DraftEngine::DraftEngine(Model& model, Backend& backend, const DraftEngineOptions& options)
    : options_(options),
      eos_ids_(model.config().eos_token_ids),
      kv_(options.kv),
      step_(model, backend, kv_, options.n_valid_ids),
      prefill_(equal_attention_context(model.config())) {
  const auto model_limit = static_cast<Position>(model.config().max_model_len);
  max_len_ =
      options.max_model_len == 0 ? model_limit : std::min(options.max_model_len, model_limit);
  n_ids_ = options.n_valid_ids > 0 ? options.n_valid_ids : model.config().vocab_size;
  options_.max_batch_rows = std::min(options_.max_batch_rows, model.max_rows());
  if (options_.max_sequences < 1 || options_.max_batch_rows < 1)
    throw FatalError(ErrorCode::kConfig,
                     "draft.max_sequences and limits.max_batch_rows must be at least 1");
  options_.prefill_chunk = std::clamp(options_.prefill_chunk, 1, options_.max_batch_rows);
  if (options_.max_chained == 0)
    options_.max_chained = backend.gains_by_recording() ? options_.max_ahead : 1;
  // Ranks choose on the host, so there they are asked step by step.
  may_chain_ = options_.max_chained > 1 && model.ranks() == nullptr;
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
  if (sequence.is_stuck || sequence.is_outgrown || sequence.n_chain() >= chain_limit(sequence) ||
      sequence.tokens.size() >= max_len_)
    return false;
  const auto& endings = sequence.endings;
  const bool has_ended = sequence.n_chain() > 0 &&
                         std::binary_search(endings.begin(), endings.end(), sequence.tokens.back());
  return !has_ended;
}

std::uint32_t DraftEngine::n_pending(const LeasedSequence& sequence) const {
  const Position n_cached = sequence.has_cache ? kv_.length(sequence.cache_name) : 0;
  return static_cast<std::uint32_t>(sequence.tokens.size()) - n_cached;
}

bool DraftEngine::wants_rows(const LeasedSequence& sequence) const {
  if (can_grow(sequence)) return true;
  if (sequence.budget > 0 || sequence.is_outgrown) return false;
  return (sequence.has_cache || sequence.is_fresh) && n_pending(sequence) > kIdleCatchUp;
}

bool DraftEngine::has_work() const {
  // Beside no chain at all branches are worth a pass where rows beside one cost hardly anything.
  const bool may_have_branches = n_branch_rows(0) > 0;
  return std::any_of(sequences_.begin(), sequences_.end(), [&](const auto& entry) {
    return entry.second->owes_answer || wants_rows(*entry.second) ||
           (may_have_branches && wants_branch_rows(*entry.second));
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
    for (std::size_t i = 0; i < in_step_.size(); ++i) {
      const auto [sequence, branch] = in_step_[i];
      branch == nullptr ? extend(*sequence, i) : extend_branch(*sequence, *branch, i);
    }
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

// How many more guesses it wants and may make.
std::uint32_t DraftEngine::n_wanted(const LeasedSequence& sequence) const {
  if (!can_grow(sequence)) return 0;
  return std::min(chain_limit(sequence) - sequence.n_chain(),
                  max_len_ - static_cast<Position>(sequence.tokens.size()));
}

// Steps that may follow the next one without the host: until the first of all has its guesses, so
// that no sequence waits for another's. None where a prompt is to be read, where a rule looks at
// the tokens that were chosen (penalties and bad words of several tokens are counted by the host),
// and where rows or blocks are scarce.
std::uint32_t DraftEngine::n_chainable() const {
  if (!may_chain_ || order_.empty()) return 0;
  std::uint32_t n_steps = options_.max_chained;
  std::size_t n_rows = 0;
  for (const LeasedSequence* sequence : order_) {
    // One that is ahead listens after every step, for the record that makes its guesses void.
    const bool is_ready = sequence->has_cache && can_grow(*sequence) && !is_ahead(*sequence) &&
                          n_pending(*sequence) <= kFewBehind &&
                          !sequence->rules.depends_on_history();
    if (!is_ready) return 0;
    n_steps = std::min(n_steps, n_wanted(*sequence));
    n_rows += n_pending(*sequence);
  }
  if (n_rows > static_cast<std::size_t>(options_.max_batch_rows)) return 0;
  std::int64_t n_blocks = 0;
  for (const LeasedSequence* sequence : order_)
    n_blocks += kv_.blocks_needed(sequence->cache_name, n_pending(*sequence) + n_steps - 1);
  return n_blocks <= kv_.free_blocks() ? n_steps - 1 : 0;
}

// How long the pass may take for the sake of prompts. A chain takes several passes and its target
// waits for it, so beside chains prompts get half of the time; else no more than max_step, as the
// next record may come any moment; and twice that if there is no other sequence. Where a pass of
// one row takes half of that, twice such a pass.
void DraftEngine::plan_prompts() {
  planned_ = {};
  prompt_work_ = attention_rows_ = 0;
  if (options_.max_step <= Duration::zero()) return;
  const auto n_chains = static_cast<std::uint32_t>(
      std::count_if(order_.begin(), order_.end(), [&](const LeasedSequence* sequence) {
        return can_grow(*sequence) && n_pending(*sequence) <= kLeastPrefillRows;
      }));
  const std::chrono::duration<double> plain(cost_.seconds(std::max(1u, n_chains)));
  planned_ = std::max<Duration>(2 * std::chrono::duration_cast<Duration>(plain), kShortestPass);
  if (n_chains == 0)
    planned_ = std::max(planned_, options_.max_step * (sequences_.size() > 1 ? 1 : 2));
  most_work_ = prefill_.rates().work_within(planned_);
}

// Of n rows those that this pass has time for. A few are always taken, and the first of several
// sequences gets a few more in any case.
std::uint32_t DraftEngine::rows_in_time(const LeasedSequence& sequence,
                                        std::uint32_t n_rows) const {
  const bool is_chain = step_.plan().n_ahead > 0;
  if (planned_ == Duration::zero() || n_rows <= kLeastPrefillRows || is_chain) return n_rows;
  const auto least = prompt_work_ == 0 ? static_cast<std::uint32_t>(kLeastPrefillRows) : 0u;
  const std::uint32_t in_time =
      prefill_.rates().rows_within(most_work_ - prompt_work_, kv_.length(sequence.cache_name));
  return std::min(n_rows, std::max(least, in_time));
}

void DraftEngine::note_prompt_work(const LeasedSequence& sequence, std::uint32_t n_rows) {
  if (n_rows < kLeastPrefillRows) return;
  const double work = prefill_.rates().work(kv_.length(sequence.cache_name), n_rows);
  prompt_work_ += work;
  attention_rows_ += work - n_rows;
}

void DraftEngine::record_step_time(Duration took) {
  if (output_.n_rows == 0) return;
  prefill_.observe(prompt_work_, most_work_, planned_, took);
  cost_.observe(output_.n_rows / output_.n_steps + static_cast<std::uint32_t>(attention_rows_),
                took / output_.n_steps);
}

// Longest wait first, so that no sequence starves however small a pass is.
void DraftEngine::fill_step(TimePoint now) {
  in_step_.clear();
  order_.clear();
  for (const auto& [key, sequence] : sequences_)
    if (wants_rows(*sequence)) order_.push_back(sequence.get());
  const auto is_unasked = [this](const LeasedSequence* each) { return is_ahead(*each); };
  if (!std::all_of(order_.begin(), order_.end(), is_unasked)) std::erase_if(order_, is_unasked);
  step_.begin(n_chainable());
  std::sort(order_.begin(), order_.end(),
            [](const LeasedSequence* a, const LeasedSequence* b) { return a->turn < b->turn; });
  plan_prompts();
  plan_branches();
  auto rows_left = static_cast<std::uint32_t>(options_.max_batch_rows);
  auto chunk_left = static_cast<std::uint32_t>(options_.prefill_chunk);
  for (LeasedSequence* sequence : order_) {
    if (!wants_rows(*sequence)) continue;  // lost its blocks to one before it
    if (!sequence->has_cache) {
      const auto hit = kv_.open(sequence->cache_name, sequence->tokens, sequence->tenant_salt);
      FORETOKEN_CHECK(hit.ok());
      sequence->has_cache = true;
      sequence->is_fresh = false;
    }
    // The last token is fed only with a choice to be made: its row gives the next guess.
    const std::uint32_t n_missing = n_pending(*sequence) - (can_grow(*sequence) ? 0 : 1);
    const bool is_prompt = n_missing > kFewBehind;
    const std::uint32_t n_rows = rows_in_time(
        *sequence, std::min({n_missing, rows_left, is_prompt ? chunk_left : rows_left}));
    if (n_rows == 0) continue;
    bool added = add_slice(*sequence, n_rows);
    if (!added && drop_all_branches()) added = add_slice(*sequence, n_rows);
    if (!added && is_ahead(*sequence)) {
      sequence->is_stuck = true;  // blocks are short: no more of it until the next record
      continue;
    }
    while (!added && take_blocks_from_another(*sequence, now)) added = add_slice(*sequence, n_rows);
    if (!added) {
      set_busy(*sequence, now);
      continue;
    }
    sequence->turn = ++n_turns_;
    note_prompt_work(*sequence, n_rows);
    in_step_.push_back({sequence});
    rows_left -= n_rows;
    if (is_prompt) chunk_left -= n_rows;
  }
  if (rows_left == 0 || chunk_left == 0) most_work_ = prompt_work_;  // rows were the limit
  add_branch_rows(rows_left);
}

bool DraftEngine::add_slice(LeasedSequence& sequence, std::uint32_t n_rows) {
  const Position start = kv_.length(sequence.cache_name);
  const bool chooses = start + n_rows == sequence.tokens.size() && can_grow(sequence);
  return step_
      .add({.seq = sequence.cache_name,
            .known = std::span<const TokenId>(sequence.tokens).subspan(start, n_rows),
            .rules = chooses ? &sequence.rules : nullptr,
            .guessed = chooses ? sequence.chain() : std::span<const TokenId>{},
            .endings = sequence.endings,
            .n_top = chooses ? n_likeliest(sequence) : 0})
      .ok();
}

// Idle sequences lose their blocks first, then younger ones than the beneficiary; never those in
// this step.
bool DraftEngine::take_blocks_from_another(const LeasedSequence& beneficiary, TimePoint now) {
  const auto is_idle_now = [this](const LeasedSequence& each) {
    return is_ahead(each) || !wants_rows(each);
  };
  LeasedSequence* victim = nullptr;
  for (const auto& [key, sequence] : sequences_) {
    LeasedSequence* candidate = sequence.get();
    if (!candidate->has_cache || candidate == &beneficiary ||
        kv_.length(candidate->cache_name) == 0 ||
        std::any_of(in_step_.begin(), in_step_.end(),
                    [&](const InStep& each) { return each.sequence == candidate; }))
      continue;
    const bool is_idle = is_idle_now(*candidate);
    if (!is_idle && candidate->cache_name < beneficiary.cache_name) continue;
    const bool is_better =
        victim == nullptr || (is_idle && !is_idle_now(*victim)) ||
        (is_idle == is_idle_now(*victim) && candidate->cache_name > victim->cache_name);
    if (is_better) victim = candidate;
  }
  if (victim == nullptr) return false;
  if (is_idle_now(*victim)) {
    drop_cache(*victim);  // its tokens stay: it is computed again when it is wanted again
    if (is_ahead(*victim)) victim->is_stuck = true;
  } else {
    set_busy(*victim, now);
  }
  return true;
}

void DraftEngine::set_busy(LeasedSequence& sequence, TimePoint now) {
  drop_cache(sequence);
  sequence.budget = 0;
  sequence.owes_answer = false;
  sequence.busy_until = now + options_.retry_after;
  ++totals_.n_busy;
  output_.busy.push_back({sequence.key.target, busy(sequence, options_.retry_after)});
}

void DraftEngine::extend(LeasedSequence& sequence, std::size_t slice) {
  const PlanSlice& plan = step_.plan().slices[slice];
  if (plan.n_choices == 0) {
    sequence.is_stuck = false;
    return step_.commit(slice, plan.n_known, sequence.tokens);
  }
  const std::uint32_t n_fed = append_choices(sequence, slice, plan.n_known);
  step_.commit(slice, n_fed, sequence.tokens);
}

// The choices after the n_fed tokens that its rows were given. Returns how many it was given then.
std::uint32_t DraftEngine::append_choices(LeasedSequence& sequence,
                                          std::size_t slice,
                                          std::uint32_t n_fed) {
  for (std::uint32_t k = 0;; ++k, ++n_fed) {
    const Choice& choice = step_.chained(slice, k);
    sequence.is_stuck = choice.token < 0;
    if (sequence.is_stuck) return n_fed - 1;  // its row is asked again when something has changed
    sequence.tokens.push_back(choice.token);
    sequence.confidences.push_back(confidence_byte(choice.logprob));
    sequence.runners_up.push_back(may_branch(sequence) ? runners_up(slice, choice.token)
                                                       : kNoRunnersUp);
    sequence.has_guessed = true;
    ++output_.n_drafted;
    if (k == step_.plan().n_ahead || !can_grow(sequence)) return n_fed;
  }
}

// ---- telling ----

// A record that came before the chain was complete: the target has taken its step without. It is
// told how far the chain is nevertheless, or a draft that is slower than its target would seem
// dead.
bool DraftEngine::emit_overtaken() {
  for (const auto& [key, sequence] : sequences_) {
    if (!sequence->overtaken) continue;
    emit(*sequence, *sequence->overtaken, sequence->overtaken_asked, Answer::kWhole);
    sequence->overtaken.reset();
  }
  return !output_.proposals.empty();
}

// A chain that went on may hold the answer already.
void DraftEngine::emit_held() {
  for (const auto& [key, sequence] : sequences_)
    if (sequence->run_ahead > 0) emit_if_ready(*sequence);
}

void DraftEngine::emit_ready() {
  for (const auto& [key, sequence] : sequences_) emit_if_ready(*sequence);
}

void DraftEngine::emit_if_ready(LeasedSequence& sequence) {
  if (!sequence.owes_answer || can_grow(sequence)) return;
  sequence.owes_answer = false;
  emit(sequence, sequence.epoch, sequence.asked, Answer::kWhole);
}

// Each token as it is made: of an answer before it is complete, beyond it, and beside it.
void DraftEngine::emit_ahead() {
  for (const auto& [key, sequence] : sequences_)
    if (sequence->run_ahead > 0 && sequence->budget > 0 && has_news(*sequence))
      emit(*sequence, sequence->epoch, TimePoint{},
           sequence->owes_answer ? Answer::kPart : Answer::kWhole);
}

bool DraftEngine::has_news(const LeasedSequence& sequence) {
  return sequence.has_guessed ||
         std::any_of(sequence.branches.begin(), sequence.branches.end(),
                     [](const DraftBranch& branch) { return branch.has_grown; });
}

void DraftEngine::emit(LeasedSequence& sequence, Epoch epoch, TimePoint asked, Answer answer) {
  const auto chain = sequence.chain();
  sequence.has_guessed = false;
  ReadyProposal& ready = output_.proposals.emplace_back(
      ReadyProposal{.to = sequence.key.target,
                    .record = {.seq = sequence.key.seq,
                               .lease = sequence.lease,
                               .epoch = epoch,
                               .base = sequence.known,
                               .prefix = sequence.prefix,
                               .tokens = {chain.begin(), chain.end()},
                               .confidence = sequence.confidences,
                               .known = sequence.known,
                               .is_partial = answer == Answer::kPart},
                    .asked = asked});
  append_branches(sequence, ready.record);
}

DraftSnapshot DraftEngine::snapshot() const {
  DraftSnapshot snapshot = totals_;
  snapshot.n_attached = static_cast<std::uint32_t>(sequences_.size());
  for (const auto& [key, sequence] : sequences_) {
    if (wants_rows(*sequence)) ++snapshot.n_behind;
    snapshot.n_remembered += sequence->tokens.size();
  }
  snapshot.kv = kv_.stats();
  return snapshot;
}

}  // namespace foretoken
