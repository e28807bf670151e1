// Which proposers a target asks after a pass, how much, and what passes yield with and without it.
#include <algorithm>
#include <utility>

#include "common/engine/target_engine.h"

namespace foretoken {

// Those that answer at once first: what they say is there when the others are asked.
void TargetEngine::ask_all(TimePoint now) {
  n_to_make_ = 0;
  best_budgets_.fill(0);
  ProposerSet at_once, over_link;
  for (const Proposer* proposer : proposers_)
    if (proposer != nullptr)
      (kAskedOverALink.contains(proposer->kind()) ? over_link : at_once).add(proposer->kind());
  ask_kinds(at_once, now);
  at_once.for_each([&](ProposerKind kind) { proposer_of(kind)->collect(now, store_); });
  ask_kinds(over_link, now);
}

void TargetEngine::ask_kinds(ProposerSet kinds, TimePoint now) {
  for (auto& asks : asks_) asks.clear();
  for (Sequence* sequence : running_) {
    if (!is_asked_now(*sequence)) continue;
    kinds.for_each([&](ProposerKind kind) {
      if (!sequence->proposers.contains(kind)) return;
      if (!kAskedOverALink.contains(kind)) return add_ask(kind, *sequence, most_asked(*sequence));
      if (kind == ProposerKind::kMemory) return look_up(*sequence);
      if (may_ask(*sequence, now)) ask_draft(*sequence, now);
    });
  }
  for (std::size_t kind = 0; kind < kProposerKinds; ++kind)
    if (!asks_[kind].empty()) proposer_of(static_cast<ProposerKind>(kind))->ask(asks_[kind]);
}

// Not one that was asked for already and has not moved since. Where it may have no proposals,
// nothing is asked, rather than asked with a budget of 0, which would withdraw the question of an
// ATTACH: the draft would be let go as silent. It gets the tokens with the next question.
bool TargetEngine::is_asked_now(const Sequence& sequence) const {
  return sequence.is_decoding && sequence.last_pass == totals_.n_steps &&
         most_proposals(sequence) > 0;
}

void TargetEngine::ask_draft(Sequence& sequence, TimePoint now) {
  const DraftOutlook draft = outlook(sequence, now);
  sequence.n_asked = draft_budget_of(sequence, draft);
  add_ask(ProposerKind::kDraft, sequence, sequence.n_asked);
  if (draft.readiness == DraftReadiness::kReady && !draft.is_stream())
    n_to_make_ = std::max(n_to_make_, sequence.n_asked - n_drafted_ahead(sequence));
}

// What is at hand and as good as sure spares the cores of a draft, which only stays current then.
std::uint32_t TargetEngine::draft_budget_of(const Sequence& sequence, const DraftOutlook& draft) {
  std::uint32_t budget = budget_of(sequence);
  // One that sends each token as it is made is not waited for longer because it makes more.
  if (sequence.length == LengthMode::kAdaptive && !draft.is_stream()) budget = best_budget(budget);
  if (sequence.proposers.size() < 2 || draft.readiness != DraftReadiness::kReady ||
      draft.is_under_way)
    return budget;
  const std::vector<PathToken>& path = best_path(sequence, budget);
  return length_.is_plenty(path, budget, sequence.odds.factor()) ? 0 : budget;
}

// Sequences of one limit have one answer after a pass.
std::uint32_t TargetEngine::best_budget(std::uint32_t cap) {
  std::uint32_t& known = best_budgets_.at(cap);
  if (known == 0)
    known = budget_.best(static_cast<std::uint32_t>(running_.size()), cap, length_.step_cost());
  return known;
}

// Of a chain of which all that was verified stood the rest may be there still.
std::uint32_t TargetEngine::n_drafted_ahead(const Sequence& sequence) const {
  if (sequence.n_accepted < sequence.path.size()) return 0;
  return n_drafted(best_path(sequence, sequence.n_asked));
}

std::uint32_t TargetEngine::n_drafted(std::span<const PathToken> path) {
  const auto end = std::find_if_not(path.begin(), path.end(), [](const PathToken& token) {
    return token.sources.contains(ProposerKind::kDraft);
  });
  return static_cast<std::uint32_t>(end - path.begin());
}

std::uint32_t TargetEngine::most_asked(const Sequence& sequence) const {
  return std::min(sequence.proposal_cap(), most_proposals(sequence));
}

std::uint32_t TargetEngine::budget_of(const Sequence& sequence) const {
  const std::uint32_t cap = std::min(most_asked(sequence), sequence.draft_len);
  return sequence.length == LengthMode::kFixed ? cap : std::min(cap, length_.budget(cap));
}

void TargetEngine::add_ask(ProposerKind kind, const Sequence& sequence, std::uint32_t budget) {
  const std::span<const PathToken> path = sequence.path;
  const auto count = [&](std::span<const PathToken> tokens) {
    return static_cast<std::uint32_t>(
        std::count_if(tokens.begin(), tokens.end(),
                      [&](const PathToken& t) { return t.sources.contains(kind); }));
  };
  asks_[static_cast<std::size_t>(kind)].push_back(
      {.seq = sequence.id,
       .budget = budget,
       .n_verified = count(path),
       .n_accepted = count(path.first(std::min<std::size_t>(path.size(), sequence.n_accepted))),
       .n_at_hand = kind == ProposerKind::kDraft ? n_drafted(best_path(sequence, budget)) : 0,
       .step = last_took_});
}

// Whether the controller decides if drafts are asked for it.
bool TargetEngine::is_gated(const Sequence& sequence) const {
  return sequence.proposers.contains(ProposerKind::kDraft) &&
         sequence.length == LengthMode::kAdaptive;
}

void TargetEngine::note_undrafted_path(Sequence& sequence, std::uint32_t cap) const {
  sequence.undrafted_path.reset();
  const auto is_drafted = [](const PathToken& token) {
    return token.sources == ProposerSet(ProposerKind::kDraft);
  };
  if (!is_gated(sequence) || std::ranges::none_of(sequence.path, is_drafted)) return;
  sequence.undrafted_path =
      store_.best_path_without(ProposerKind::kDraft, sequence.id, cap, length_.calibration());
}

// Of the tokens that a pass brought, those that it would have brought without drafts.
std::uint32_t TargetEngine::n_undrafted(const Sequence& sequence, std::uint32_t n_delivered) {
  if (!sequence.undrafted_path || n_delivered == 0) return n_delivered;
  const std::size_t most = std::min(
      {sequence.undrafted_path->size(), sequence.path.size(), std::size_t{n_delivered - 1}});
  const auto delivered = sequence.text().tokens().last(n_delivered);
  std::uint32_t n = 0;
  while (n < most && (*sequence.undrafted_path)[n].token == delivered[n]) ++n;
  return n + 1;
}

bool TargetEngine::may_ask(const Sequence& sequence, TimePoint now) const {
  const DraftingGate::Asking asking = gate_.asking();
  if (!is_gated(sequence) || asking == DraftingGate::Asking::kAll) return true;
  if (asking == DraftingGate::Asking::kNone) return false;
  // The first of which an answer can come: else nothing would be learnt of drafts.
  const auto first = std::ranges::find_if(running_, [&](const Sequence* each) {
    return is_gated(*each) && is_asked_now(*each) &&
           outlook(*each, now).readiness != DraftReadiness::kDetached;
  });
  return first != running_.end() && *first == &sequence;
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
                 .n_without = undrafted_value_,
                 .interval = interval,
                 .most_proposals = most_proposals,
                 .is_owed = is_owed,
                 .is_opening = 2 * n_opening > (asks_one ? 1 : n_gated)},
                length_.step_cost());
  if (gate_.asking() == DraftingGate::Asking::kNone) ++totals_.n_silent_steps;
}

FallbackReason TargetEngine::why_plain(const Sequence& sequence, TimePoint now) const {
  if (sequence.proposers.empty()) return FallbackReason::kDisabled;
  if (sequence.lacked_room || most_proposals(sequence) == 0) return FallbackReason::kNoRoom;
  if (sequence.had_path) return FallbackReason::kNotWorth;
  const bool has_draft = sequence.proposers.contains(ProposerKind::kDraft) &&
                         proposer_of(ProposerKind::kDraft) != nullptr;
  if (!has_draft) {
    bool has_any = false;
    sequence.proposers.for_each(
        [&](ProposerKind kind) { has_any = has_any || proposer_of(kind) != nullptr; });
    return has_any ? FallbackReason::kNoProposal : FallbackReason::kNoProposer;
  }
  const DraftReadiness readiness = outlook(sequence, now).readiness;
  const bool is_attached =
      readiness == DraftReadiness::kReady || readiness == DraftReadiness::kUnready;
  if (readiness == DraftReadiness::kUnasked || (is_attached && !may_ask(sequence, now)))
    return FallbackReason::kNotWorth;
  return is_attached ? FallbackReason::kNoProposal : FallbackReason::kNoProposer;
}

}  // namespace foretoken
