#include "common/engine/draft_answers.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>

#include "common/spec/proposal.h"

namespace foretoken {
namespace {

enum class Answer : std::uint8_t { kWhole, kPart };

struct Answered {
  Epoch epoch{};
  TimePoint asked{};
  Answer answer = Answer::kWhole;
};

// Those that have grown since they were last sent, after the chain.
void append_branches(LeasedSequence& sequence, wire::ProposalRecord& record) {
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

void send(LeasedSequence& sequence, const Answered& to, std::vector<ReadyProposal>& sent) {
  const std::span<const TokenId> chain = sequence.chain.guessed();
  sequence.has_guessed = false;
  ReadyProposal& ready =
      sent.emplace_back(ReadyProposal{.to = sequence.key.target,
                                      .record = {.seq = sequence.key.seq,
                                                 .lease = sequence.lease,
                                                 .epoch = to.epoch,
                                                 .base = sequence.chain.known(),
                                                 .prefix = sequence.prefix,
                                                 .tokens = {chain.begin(), chain.end()},
                                                 .known = sequence.chain.known(),
                                                 .is_partial = to.answer == Answer::kPart},
                                      .asked = to.asked});
  for (const Guess& guess : sequence.chain.guesses())
    ready.record.confidence.push_back(guess.confidence);
  append_branches(sequence, ready.record);
}

bool has_news(const LeasedSequence& sequence) {
  return sequence.has_guessed ||
         std::any_of(sequence.branches.begin(), sequence.branches.end(),
                     [](const DraftBranch& branch) { return branch.has_grown; });
}

}  // namespace

void answer_overtaken(LeasedSequence& sequence, std::vector<ReadyProposal>& sent) {
  if (!sequence.overtaken) return;
  send(sequence, {.epoch = *sequence.overtaken, .asked = sequence.overtaken_asked}, sent);
  sequence.overtaken.reset();
}

void answer_if_complete(LeasedSequence& sequence, std::vector<ReadyProposal>& sent) {
  if (!sequence.owes_answer || sequence.can_grow()) return;
  sequence.owes_answer = false;
  send(sequence, {.epoch = sequence.epoch, .asked = sequence.asked}, sent);
}

void send_news(LeasedSequence& sequence, std::vector<ReadyProposal>& sent) {
  if (!sequence.goes_on() || !has_news(sequence)) return;
  const Answer answer = sequence.owes_answer ? Answer::kPart : Answer::kWhole;
  send(sequence, {.epoch = sequence.epoch, .answer = answer}, sent);
}

}  // namespace foretoken
