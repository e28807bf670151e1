// Follows a text the client expects. While the answer agrees, the rest of the prediction is
// proposed; after a divergence it looks for the last few answer tokens in the prediction and goes
// on from there. One thread.
#pragma once

#include <unordered_map>
#include <vector>

#include "common/spec/proposer.h"
#include "common/spec/ready_proposals.h"
#include "common/spec/suffix_index.h"

namespace foretoken {

struct PredictionConfig {
  // Answer tokens that must agree before it goes on after a divergence.
  std::uint32_t min_match = 2;
  std::uint32_t max_match = 16;  // and how many are compared
};

class PredictionProposer final : public Proposer {
 public:
  explicit PredictionProposer(const PredictionConfig& config = {}) : config_(config) {}
  ProposerKind kind() const override { return ProposerKind::kPrediction; }
  void open(const Opening& opening) override;
  void ask(std::span<const Ask> asks) override;
  void collect(TimePoint, ProposalStore& into) override { ready_.hand_over(into); }
  void close(SeqId seq) override;

 private:
  struct Text {
    const CommittedTokens* committed;
    std::uint32_t n_prompt = 0;
    std::vector<TokenId> prediction;
    SuffixIndex index;         // of the prediction
    Position known = 0;        // tokens seen, prompt included
    std::size_t next = 0;      // index of the expected token
    std::uint32_t agreed = 0;  // answer tokens in a row that were as predicted; 0: lost
  };
  void follow(Text& text) const;

  PredictionConfig config_;
  std::unordered_map<SeqId, Text> texts_;
  ReadyProposals ready_;
};

}  // namespace foretoken
