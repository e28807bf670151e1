// What is sent to targets of their sequences: when a chain is an answer, and what goes beside it.
#include <algorithm>
#include <utility>

#include "common/engine/leased_sequence.h"
#include "common/spec/proposal.h"

namespace foretoken {

// A record that came before the chain was complete: the target has taken its step without. How far
// the chain is goes to it nevertheless, or a draft that is slower than its target would seem dead.
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
  const std::span<const TokenId> chain = sequence.chain.guessed();
  sequence.has_guessed = false;
  ReadyProposal& ready = output_.proposals.emplace_back(
      ReadyProposal{.to = sequence.key.target,
                    .record = {.seq = sequence.key.seq,
                               .lease = sequence.lease,
                               .epoch = epoch,
                               .base = sequence.chain.known(),
                               .prefix = sequence.prefix,
                               .tokens = {chain.begin(), chain.end()},
                               .known = sequence.chain.known(),
                               .is_partial = answer == Answer::kPart},
                    .asked = asked});
  for (const Guess& guess : sequence.chain.guesses())
    ready.record.confidence.push_back(guess.confidence);
  append_branches(sequence, ready.record);
}

// Those that have grown since they were last sent, after the chain.
void DraftEngine::append_branches(LeasedSequence& sequence, wire::ProposalRecord& record) {
  const auto n_chain = static_cast<std::uint16_t>(record.tokens.size());
  for (DraftBranch& branch : sequence.branches) {
    if (!std::exchange(branch.has_grown, false)) continue;
    const auto at = static_cast<std::uint16_t>(branch.position - sequence.chain.known());
    if (record.parents.empty())
      for (std::uint16_t i = 0; i < n_chain; ++i)
        record.parents.push_back(i == 0 ? kParentIsBase : static_cast<std::uint16_t>(i - 1));
    for (std::uint32_t own = 0; own < branch.n_own(); ++own) {
      const auto before = static_cast<std::uint16_t>(record.tokens.size() - 1);
      record.parents.push_back(own > 0   ? before
                               : at == 0 ? kParentIsBase
                                         : static_cast<std::uint16_t>(at - 1));
      record.tokens.push_back(branch.tokens[own]);
      record.confidence.push_back(branch.guesses[own].confidence);
    }
  }
}

}  // namespace foretoken
