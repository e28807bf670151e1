// Proposes the last token again. Says how much work a new proposer is; of no use to anyone.
#pragma once

#include <unordered_map>

#include "common/spec/proposer.h"
#include "common/spec/ready_proposals.h"

namespace foretoken {

class RepeatProposer final : public Proposer {
 public:
  ProposerKind kind() const override { return ProposerKind::kRepeat; }
  void open(const Opening& opening) override { texts_[opening.seq] = &opening.text; }
  void ask(std::span<const Ask> asks) override {
    for (const Ask& ask : asks) {
      const auto found = texts_.find(ask.seq);
      if (found == texts_.end() || ask.budget == 0) continue;
      const CommittedTokens& text = *found->second;
      ready_.add(ask.seq, {.base = text.size(),
                           .prefix = text.prefix(),
                           .tokens = std::vector<TokenId>(ask.budget, text.back()),
                           .parents = {},
                           .confidences = std::vector<std::uint8_t>(ask.budget, 64),
                           .source = kind()});
    }
  }
  void collect(TimePoint, ProposalStore& into) override { ready_.hand_over(into); }
  void close(SeqId seq) override {
    texts_.erase(seq);
    ready_.forget(seq);
  }

 private:
  std::unordered_map<SeqId, const CommittedTokens*> texts_;
  ReadyProposals ready_;
};

}  // namespace foretoken
