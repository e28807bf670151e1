// What a confidence is worth: how often tokens of a proposer, of a confidence, at a depth in the
// round were accepted. Starts from the proposer's own word, ends with what was counted. Counts
// fade, so that it follows a text that changes; what has not been tried for long is trusted a
// little again, and so tried again. Pure; one thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "common/spec/proposal.h"

namespace foretoken {

// Whether a round was chosen because it looked worth it, or to see whether things have changed.
enum class RoundKind : std::uint8_t { kNormal, kTrial };

class Calibration {
 public:
  // P(the token is accepted, given those before it were): lower end of a 90 % interval. depth 0 =
  // first of a round.
  double acceptance(const PathToken& token, std::uint32_t depth) const;

  // The outcome of one round for one sequence: the first n_accepted of `verified` stood. A success
  // in a trial makes old counts count less: things may have changed.
  void observe(std::span<const PathToken> verified, std::uint32_t n_accepted, RoundKind kind);

 private:
  static constexpr std::size_t kConfidences = 8;
  static constexpr std::size_t kDepths = 4;  // first, second, third and fourth, deeper
  struct Cell {
    double n_tried = 0;
    double n_accepted = 0;
    void fade(double factor) { n_tried *= factor, n_accepted *= factor; }
  };
  struct Confidence {
    Cell all;  // over all depths
    std::array<Cell, kDepths> at_depth;
  };
  static std::size_t depth_class(std::uint32_t depth);
  static std::size_t confidence_class(const PathToken& token);
  std::array<std::array<Confidence, kConfidences>, kProposerKinds> cells_{};
};

}  // namespace foretoken
