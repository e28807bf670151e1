// Prompt lookup: if the last tokens occurred before in prompt or answer, what followed most often
// then is proposed now, at most twice as many tokens as agreed. Confidence grows with the length of
// the match and with the share of the places that go on so. No model, no state to lose. One thread.
#pragma once

#include <unordered_map>

#include "common/spec/proposer.h"
#include "common/spec/ready_proposals.h"
#include "common/spec/suffix_index.h"

namespace foretoken {

struct NgramConfig {
  std::uint32_t min_match = 1;  // shortest match that is worth saying
  std::uint32_t max_match = 32;
};

class NgramProposer final : public Proposer {
 public:
  explicit NgramProposer(const NgramConfig& config = {}) : config_(config) {}
  ProposerKind kind() const override { return ProposerKind::kNgram; }
  void open(const Opening& opening) override;
  void ask(std::span<const Ask> asks) override;
  void collect(TimePoint, ProposalStore& into) override { ready_.hand_over(into); }
  void close(SeqId seq) override;

 private:
  struct Indexed {
    const CommittedTokens* text;
    SuffixIndex index;
  };
  Proposal look_up(const Indexed& indexed, std::uint32_t budget) const;

  NgramConfig config_;
  std::unordered_map<SeqId, Indexed> texts_;
  ReadyProposals ready_;
};

}  // namespace foretoken
