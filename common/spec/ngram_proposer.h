// Prompt lookup: if the last tokens occurred before in prompt or answer, what followed then is
// proposed now. Confidence grows with the length of the match. No model, no state to lose. One
// thread.
#pragma once

#include <unordered_map>

#include "common/spec/proposer.h"
#include "common/spec/ready_proposals.h"
#include "common/spec/suffix_index.h"

namespace foretoken {

struct NgramConfig {
  std::uint32_t min_match = 1;  // shortest match that is worth saying
  std::uint32_t max_match = 16;
};

// 255 * P(next token is right) before anything was learnt, for a match of so many tokens.
std::uint8_t match_confidence(std::uint32_t match_length);

class NgramProposer final : public Proposer {
 public:
  explicit NgramProposer(const NgramConfig& config = {}) : config_(config) {}
  ProposerKind kind() const override { return ProposerKind::kNgram; }
  void open(const Opening& opening) override;
  void ask(std::span<const Ask> asks) override;
  void collect(TimePoint, ProposalStore& into) override { ready_.hand_over(into); }
  void close(SeqId seq) override;

 private:
  NgramConfig config_;
  struct Indexed {
    const CommittedTokens* text;
    SuffixIndex index;
  };
  std::unordered_map<SeqId, Indexed> texts_;
  ReadyProposals ready_;
};

}  // namespace foretoken
