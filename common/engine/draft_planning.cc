// Which rows a pass has: of chains, of prompts as far as there is time, and of branches; and who
// loses blocks where they are short.
#include <algorithm>
#include <chrono>

#include "common/base/check.h"
#include "common/engine/leased_sequence.h"

namespace foretoken {
namespace {

// Passes are not cut shorter than this for the sake of chains.
constexpr Duration kShortestPass = std::chrono::milliseconds(1);

}  // namespace

// How many more guesses it wants and may make.
std::uint32_t DraftEngine::n_wanted(const LeasedSequence& sequence) const {
  if (!can_grow(sequence)) return 0;
  return std::min(chain_limit(sequence) - sequence.chain.n_guesses(),
                  max_len_ - sequence.chain.length());
}

// Steps that may follow the next one without the host: until the first of all has its guesses, so
// that no sequence waits for another's. None where a prompt is to be read, where a rule looks at
// the tokens that were chosen (penalties and bad words of several tokens are counted by the host),
// and where rows or blocks are scarce.
std::uint32_t DraftEngine::n_chainable() const {
  if (max_chained_ == 1 || order_.empty()) return 0;
  std::uint32_t n_steps = max_chained_;
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
      const auto hit =
          kv_.open(sequence->cache_name, sequence->chain.text(), sequence->tenant_salt);
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
    in_step_.push_back(sequence);
    rows_left -= n_rows;
    if (is_prompt) chunk_left -= n_rows;
  }
  if (rows_left == 0 || chunk_left == 0) most_work_ = prompt_work_;  // rows were the limit
  branches_.add_rows(rows_left);
}

// Whether texts beside its chain may be of use: those of a target that listens all the time.
bool DraftEngine::may_branch(const LeasedSequence& sequence) const {
  return branches_.are_on() && sequence.run_ahead > 0 && sequence.budget > 0 &&
         !sequence.chain.is_outgrown();
}

// Beside the chains of the pass, of the same sequences; where there are none, of all.
void DraftEngine::plan_branches() {
  branching_.clear();
  std::uint32_t n_others = 0;
  bool has_prompt = false;  // these come first
  for (LeasedSequence* sequence : order_) {
    n_others += n_pending(*sequence);
    has_prompt = has_prompt || n_pending(*sequence) > kFewBehind;
    if (may_branch(*sequence)) branching_.push_back(sequence);
  }
  if (order_.empty())
    for (const auto& [key, sequence] : sequences_)
      if (may_branch(*sequence)) branching_.push_back(sequence.get());
  if (has_prompt) branching_.clear();
  branches_.plan(branching_, n_others);
}

// Blocks are short: those of branches are the first to go.
bool DraftEngine::drop_all_branches() {
  bool has_dropped = false;
  for (const auto& [key, sequence] : sequences_)
    has_dropped = branches_.give_way(*sequence) || has_dropped;
  return has_dropped;
}

bool DraftEngine::add_slice(LeasedSequence& sequence, std::uint32_t n_rows) {
  const Position start = kv_.length(sequence.cache_name);
  const bool chooses = start + n_rows == sequence.chain.length() && can_grow(sequence);
  return step_
      .add({.seq = sequence.cache_name,
            .known = sequence.chain.text().subspan(start, n_rows),
            .rules = chooses ? &sequence.rules : nullptr,
            .guessed = chooses ? sequence.chain.guessed() : std::span<const TokenId>{},
            .endings = sequence.endings,
            .n_top = chooses && may_branch(sequence) ? branches_.n_likeliest(sequence) : 0})
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
        std::ranges::find(in_step_, candidate) != in_step_.end())
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

}  // namespace foretoken
