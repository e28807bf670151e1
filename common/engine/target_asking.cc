// Which proposers a target asks after a pass, how much, and what passes yield with and without it.
#include <algorithm>
#include <utility>

#include "common/engine/target_engine.h"

namespace foretoken {

void TargetEngine::ask_all(TimePoint now) {
  for (auto& asks : asks_) asks.clear();
  for (Sequence* sequence : running_) {
    if (!sequence->is_decoding || proposer_of(sequence->proposer) == nullptr) continue;
    if (sequence->last_pass != totals_.n_steps)
      continue;  // it was asked for, and has not moved since
    const std::uint32_t budget = budget_of(*sequence);
    // Nothing is asked, rather than asked with a budget of 0, which would withdraw the question of
    // an ATTACH: the draft would be let go as silent. It gets the tokens with the next question.
    if (most_proposals(*sequence) == 0) continue;
    const bool is_asked = may_ask(*sequence);
    if (is_asked) add_ask(sequence->proposer, *sequence, budget);
    if (sequence->proposer == ProposerKind::kDraft && sequence->fallback == LocalFallback::kNgram &&
        proposer_of(ProposerKind::kNgram) != nullptr &&
        (!is_asked || outlook(*sequence, now).readiness != DraftReadiness::kReady))
      add_ask(ProposerKind::kNgram, *sequence, budget);
  }
  for (std::size_t kind = 0; kind < kProposerKinds; ++kind)
    if (!asks_[kind].empty()) proposer_of(static_cast<ProposerKind>(kind))->ask(asks_[kind]);
}

std::uint32_t TargetEngine::budget_of(const Sequence& sequence) const {
  const std::uint32_t cap = std::min(sequence.proposal_cap(), most_proposals(sequence));
  return sequence.length == LengthMode::kFixed ? cap : std::min(cap, length_.budget(cap));
}

void TargetEngine::add_ask(ProposerKind kind, const Sequence& sequence, std::uint32_t budget) {
  const std::span<const PathToken> path = sequence.path;
  const auto count = [&](std::span<const PathToken> tokens) {
    return static_cast<std::uint32_t>(std::count_if(
        tokens.begin(), tokens.end(), [&](const PathToken& t) { return t.source == kind; }));
  };
  asks_[static_cast<std::size_t>(kind)].push_back(
      {.seq = sequence.id,
       .budget = budget,
       .n_verified = count(path),
       .n_accepted = count(path.first(std::min<std::size_t>(path.size(), sequence.n_accepted))),
       .step = last_took_});
}

// Whether the controller decides if drafts are asked for it.
bool TargetEngine::is_gated(const Sequence& sequence) const {
  return sequence.proposer == ProposerKind::kDraft && sequence.length == LengthMode::kAdaptive;
}

bool TargetEngine::may_ask(const Sequence& sequence) const {
  const DraftingGate::Asking asking = gate_.asking();
  if (!is_gated(sequence) || asking == DraftingGate::Asking::kAll) return true;
  if (asking == DraftingGate::Asking::kNone) return false;
  const auto first = std::find_if(running_.begin(), running_.end(),
                                  [&](const Sequence* each) { return is_gated(*each); });
  return *first == &sequence;
}

// Passes with prompts say little about drafts.
void TargetEngine::note_yield(Duration took) {
  const TimePoint ended = step_began_ + took;
  const Duration interval = ended - std::exchange(step_ended_, ended);
  if (prompt_work_ > 0 || watch_ == nullptr) return;
  std::uint32_t n_gated = 0, n_opening = 0, n_served = 0, most_proposals = 0;
  bool is_owed = false;
  for (const Sequence* sequence : running_) {
    if (!is_gated(*sequence)) continue;
    const DraftOutlook draft = outlook(*sequence, ended);
    ++n_gated;
    if (draft.readiness == DraftReadiness::kOpening) ++n_opening;
    if (draft.readiness != DraftReadiness::kDetached) ++n_served;
    is_owed = is_owed || draft.is_under_way;
    most_proposals = std::max(most_proposals, sequence->draft_len);
  }
  if (n_served == 0 || 2 * n_served < n_gated) return;
  const bool asks_one = gate_.asking() == DraftingGate::Asking::kOne;
  gate_.observe({.n_decoding = n_decoded_,
                 .n_committed = committed_value_,
                 .interval = interval,
                 .most_proposals = most_proposals,
                 .is_owed = is_owed,
                 .is_opening = 2 * n_opening > (asks_one ? 1 : n_gated)},
                length_.step_cost());
  if (gate_.asking() == DraftingGate::Asking::kNone) ++totals_.n_silent_steps;
}

FallbackReason TargetEngine::why_plain(const Sequence& sequence, TimePoint now) const {
  if (!sequence.wanted_proposer) return FallbackReason::kDisabled;
  if (sequence.lacked_room || most_proposals(sequence) == 0) return FallbackReason::kNoRoom;
  if (sequence.had_path) return FallbackReason::kNotWorth;
  if (proposer_of(sequence.proposer) == nullptr) return FallbackReason::kNoProposer;
  if (sequence.proposer != ProposerKind::kDraft) return FallbackReason::kNoProposal;
  const DraftReadiness readiness = outlook(sequence, now).readiness;
  const bool is_attached =
      readiness == DraftReadiness::kReady || readiness == DraftReadiness::kUnready;
  if (readiness == DraftReadiness::kUnasked || (is_attached && !may_ask(sequence)))
    return FallbackReason::kNotWorth;
  return is_attached ? FallbackReason::kNoProposal : FallbackReason::kNoProposer;
}

}  // namespace foretoken
