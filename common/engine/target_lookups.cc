// When a target asks a memory of texts, and when a pass waits for its answers.
#include <algorithm>

#include "common/engine/target_engine.h"

namespace foretoken {
namespace {

// Of target and memory together, where they share cores: a message each way, and the look-up.
constexpr Duration kLookupCost = std::chrono::microseconds(100);

}  // namespace

// An ask of one of several sequences saves its part of a pass.
double TargetEngine::least_lookup_gain() const {
  const double pass = length_.step_cost().seconds(static_cast<std::uint32_t>(running_.size()));
  return pass > 0 ? in_seconds(kLookupCost) / pass : 0;
}

// What is as good as sure may still be wrong, and a memory may have the right token: the gate
// counts what asks bring there too.
LookupGate::AtHand TargetEngine::at_hand_of(const Sequence& sequence, std::uint32_t budget) const {
  const std::vector<PathToken>& path = best_path(sequence, budget);
  return length_.is_plenty(path, budget, sequence.odds.factor()) ? LookupGate::AtHand::kPlenty
                                                                 : LookupGate::AtHand::kLittle;
}

// Of two rounds: tokens cost a memory nothing, and those of the second are at hand if its next
// answer is late.
void TargetEngine::look_up(Sequence& sequence) {
  const std::uint32_t budget = most_asked(sequence);
  if (budget == 0) return;
  const LookupGate::AtHand at_hand = at_hand_of(sequence, budget);
  const bool is_always_asked = sequence.length == LengthMode::kFixed;
  if (!is_always_asked && !sequence.lookups.is_due(least_lookup_gain(), at_hand)) return;
  const std::uint32_t n_of_use = std::max(budget, sequence.finish.n_remaining() - 1);
  add_ask(ProposerKind::kMemory, sequence, std::min({2 * budget, n_of_use, kMaxDraftTokens}));
  note_last_lookup(sequence);
  lookup_gains_.note_ask(sequence.tenant_salt);
  sequence.lookups.ask(at_hand);
}

void TargetEngine::note_last_lookup(const Sequence& sequence) {
  if (const auto n_brought = sequence.lookups.n_brought())
    lookup_gains_.observe(sequence.tenant_salt, *n_brought);
}

void TargetEngine::note_lookups(Sequence& sequence, std::uint32_t n_accepted) {
  lookup_gains_.note_round(sequence.tenant_salt);
  const auto stood = std::span<const PathToken>(sequence.path).first(n_accepted);
  sequence.lookups.observe(static_cast<std::uint32_t>(std::count_if(
      stood.begin(), stood.end(),
      [](const PathToken& token) { return token.sources == ProposerSet{ProposerKind::kMemory}; })));
}

bool TargetEngine::is_lookup_owed(const Sequence& sequence, TimePoint now) const {
  if (memory_watch_ == nullptr || !sequence.is_decoding || most_asked(sequence) == 0) return false;
  if (!sequence.proposers.contains(ProposerKind::kMemory)) return false;
  const DraftOutlook memory = memory_watch_->outlook(sequence.id, now);
  return memory.readiness == DraftReadiness::kReady && memory.is_under_way;
}

Duration TargetEngine::lookup_wait(TimePoint now) {
  if (is_prefilling_ || memory_watch_ == nullptr) return {};
  double n_tokens = 0;
  for (const Sequence* sequence : running_)
    if (is_lookup_owed(*sequence, now)) n_tokens += sequence->lookups.gain();
  if (n_tokens == 0) return {};
  const double pass = length_.step_cost().seconds(static_cast<std::uint32_t>(running_.size()));
  const auto duration = [](double seconds) {
    return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
  };
  const double saved = pass * n_tokens / static_cast<double>(running_.size());
  return lookup_wait_.begin(duration(saved), duration(pass), now);
}

bool TargetEngine::is_any_lookup_owed(TimePoint now) const {
  return std::any_of(running_.begin(), running_.end(),
                     [&](const Sequence* sequence) { return is_lookup_owed(*sequence, now); });
}

}  // namespace foretoken
