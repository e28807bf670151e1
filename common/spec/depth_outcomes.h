// How often a draft's tokens stand, by their depth in the round, over all sequences of a target:
// what a chain of n tokens is worth before there is one, so before there is a confidence to go by.
// A target's figures; GuessOutcomes are a draft's own, by confidence, of guesses that are there.
// Counts fade. Pure; one thread.
#pragma once

#include <array>
#include <cstdint>

#include "common/base/sampling_params.h"

namespace foretoken {

// Of a chain of n tokens, n from 0.
struct ChainWorth {
  double tokens = 0;    // of it that are expected to stand
  double survival = 1;  // probability that all stand
};

class DepthOutcomes {
 public:
  DepthOutcomes() { rate(); }

  // A token of a draft whose turn came in a round. depth 0 = the first of the round.
  void observe(std::uint32_t depth, bool stood);

  // Probability that a token at this depth stands where those before it did.
  double rate_at(std::uint32_t depth) const;
  // The chain one token longer. `odds` is SequenceOdds::factor() of its sequence.
  ChainWorth extended(ChainWorth chain, std::uint32_t n, double odds = 1) const;
  ChainWorth chain(std::uint32_t n, double odds = 1) const;

 private:
  struct Outcomes {
    double n_tried = 0;
    double n_stood = 0;
  };
  void rate();

  std::array<Outcomes, kMaxDraftTokens> outcomes_{};
  std::array<double, kMaxDraftTokens> rates_{};
};

}  // namespace foretoken
