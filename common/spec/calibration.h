// What a confidence is worth: how often tokens of a proposer, of a confidence, at a depth in the round were accepted.
// Counts fade, so that it follows a text that changes. Pure; one thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "common/spec/proposal.h"

namespace foretoken {

class Calibration {
 public:
  // P(the token is accepted, given those before it were): lower end of a 90 % interval. depth 0 = first of a round.
  double acceptance(const PathToken& token, std::uint32_t depth) const;

  // The outcome of one round for one sequence: the first n_accepted of `verified` stood.
  void observe(std::span<const PathToken> verified, std::uint32_t n_accepted);

 private:
  static constexpr std::size_t kConfidences = 8;
  static constexpr std::size_t kDepths = 4;  // first, second, third and fourth, deeper
  struct Cell {
    double n_tried = 0;
    double n_accepted = 0;
  };
  static std::size_t cell_of(const PathToken& token, std::uint32_t depth);
  std::array<Cell, kProposerKinds * kConfidences * kDepths> cells_{};
};

}  // namespace foretoken
