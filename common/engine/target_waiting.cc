// When a pass waits for the answers of drafts, and what it waits for.
#include <algorithm>
#include <cmath>
#include <utility>

#include "common/engine/target_engine.h"

namespace foretoken {

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
  // The other ranks hear nothing meanwhile.
  return std::min(longest, step_.leader().longest_silence());
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

}  // namespace foretoken
