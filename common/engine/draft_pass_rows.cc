// The rows of each sequence in a pass, and where their blocks come from.
#include <algorithm>

#include "common/base/check.h"
#include "common/engine/draft_pass.h"

namespace foretoken {

void DraftPass::add_rows() {
  in_step_.clear();
  RowsLeft left{.all = limits_.max_batch_rows, .of_prompts = limits_.prefill_chunk};
  for (LeasedSequence* sequence : order_) {
    if (!sequence->wants_rows(kv_)) continue;  // lost its blocks to one before it
    open_cache(*sequence);
    const bool is_prompt = n_missing(*sequence) > kFewBehind;
    const std::uint32_t n_rows = n_rows_now(*sequence, is_prompt ? left.least() : left.all);
    if (n_rows == 0 || !add_finding_blocks(*sequence, n_rows)) continue;
    sequence->turn = next_turn();
    prompts_.add(kv_.length(sequence->cache_name), n_rows);
    in_step_.push_back(sequence);
    left.all -= n_rows;
    if (is_prompt) left.of_prompts -= n_rows;
  }
  if (left.least() == 0) prompts_.limit_to_added();
  branches_.add_rows(left.all);
}

void DraftPass::open_cache(LeasedSequence& sequence) {
  if (sequence.has_cache) return;
  const auto hit = kv_.open(sequence.cache_name, sequence.chain.text(), sequence.tenant_salt);
  FORETOKEN_CHECK(hit.ok());
  sequence.has_cache = true;
  sequence.is_fresh = false;
}

// The last token is fed only with a choice to be made: its row gives the next guess.
std::uint32_t DraftPass::n_missing(const LeasedSequence& sequence) const {
  return sequence.n_pending(kv_) - (sequence.can_grow() ? 0 : 1);
}

// Of those that it misses, as many as there is room and time for.
std::uint32_t DraftPass::n_rows_now(const LeasedSequence& sequence, std::uint32_t room) const {
  const std::uint32_t n_rows = std::min(n_missing(sequence), room);
  const bool is_chained = step_.plan().n_ahead > 0;
  return is_chained ? n_rows : prompts_.rows_within(kv_.length(sequence.cache_name), n_rows);
}

// Where blocks are short those of branches are the first to go. False: this one has none either.
bool DraftPass::add_finding_blocks(LeasedSequence& sequence, std::uint32_t n_rows) {
  if (add_slice(sequence, n_rows)) return true;
  if (drop_all_branches() && add_slice(sequence, n_rows)) return true;
  if (sequence.is_ahead()) {
    sequence.is_stuck = true;  // no more of it until the next record
    return false;
  }
  while (take_blocks_from_another(sequence))
    if (add_slice(sequence, n_rows)) return true;
  take_blocks(sequence);
  return false;
}

bool DraftPass::add_slice(LeasedSequence& sequence, std::uint32_t n_rows) {
  const Position start = kv_.length(sequence.cache_name);
  const bool chooses = start + n_rows == sequence.chain.length() && sequence.can_grow();
  return step_
      .add({.seq = sequence.cache_name,
            .known = sequence.chain.text().subspan(start, n_rows),
            .rules = chooses ? &sequence.rules : nullptr,
            .guessed = chooses ? sequence.chain.guessed() : std::span<const TokenId>{},
            .endings = sequence.endings,
            .n_top = chooses && sequence.may_branch() ? branches_.n_likeliest(sequence) : 0})
      .ok();
}

bool DraftPass::drop_all_branches() {
  bool has_dropped = false;
  for (const auto& [key, sequence] : sequences_)
    has_dropped = branches_.give_way(*sequence) || has_dropped;
  return has_dropped;
}

bool DraftPass::is_idle(const LeasedSequence& sequence) const {
  return sequence.is_ahead() || !sequence.wants_rows(kv_);
}

// Idle sequences lose their blocks first, then younger ones than the beneficiary; never those in
// this step. Null: there is none.
LeasedSequence* DraftPass::victim_for(const LeasedSequence& beneficiary) const {
  LeasedSequence* victim = nullptr;
  for (const auto& [key, sequence] : sequences_) {
    LeasedSequence* candidate = sequence.get();
    if (!candidate->has_cache || candidate == &beneficiary ||
        kv_.length(candidate->cache_name) == 0 ||
        std::ranges::find(in_step_, candidate) != in_step_.end())
      continue;
    const bool may_wait = is_idle(*candidate);
    if (!may_wait && candidate->cache_name < beneficiary.cache_name) continue;
    const bool is_better =
        victim == nullptr || (may_wait && !is_idle(*victim)) ||
        (may_wait == is_idle(*victim) && candidate->cache_name > victim->cache_name);
    if (is_better) victim = candidate;
  }
  return victim;
}

bool DraftPass::take_blocks_from_another(const LeasedSequence& beneficiary) {
  LeasedSequence* victim = victim_for(beneficiary);
  if (victim == nullptr) return false;
  if (is_idle(*victim)) {
    branches_.drop_cache(*victim);  // its tokens stay: it is computed again when it is wanted again
    if (victim->is_ahead()) victim->is_stuck = true;
  } else {
    take_blocks(*victim);
  }
  return true;
}

void DraftPass::take_blocks(LeasedSequence& sequence) {
  branches_.drop_cache(sequence);
  sequence.budget = 0;
  sequence.owes_answer = false;
  lost_blocks_.push_back(&sequence);
}

}  // namespace foretoken
