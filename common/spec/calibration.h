// What a confidence is worth: how often tokens of a proposer, alone or with others that
// propose the same, of a confidence, at a depth in the round stood. Starts from the proposer's own
// figure, ends with what was counted, and counts what was not verified too: the text that came
// instead shows whether it would have stood. Counts fade, so that it follows a text that changes.
// How a depth differs from the others is forgotten sooner, as a depth beyond what is verified has
// no outcomes. Pure; one thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "common/spec/proposal.h"

namespace foretoken {

class Calibration {
 public:
  // P(the token is accepted, given those before it were): lower end of a 90 % interval. depth 0 =
  // first of a round. `odds`: a factor for p / (1 - p), of the sequence. What several say is worth
  // no less than what one of them says alone, until it has been counted often enough itself.
  double acceptance(const PathToken& token, std::uint32_t depth, double odds = 1) const;
  // Likewise, without caution and of no particular sequence.
  double mean(const PathToken& token, std::uint32_t depth) const;

  // What became of the proposals for one sequence in one round, verified or not.
  void observe(std::span<const ScoredToken> scored);
  // How often something was observed: while it is the same, so is all that is said here.
  std::uint64_t n_observed() const { return n_observed_; }

 private:
  static constexpr std::size_t kConfidences = 8;
  // Of sources: alone, with one more, with two or more; and runners-up of any source.
  static constexpr std::size_t kAgreements = 4;
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
  static std::size_t agreement_class(const PathToken& token);
  static std::size_t confidence_class(const PathToken& token);
  static std::size_t place_of(const PathToken& token);
  double cautious(const PathToken& token, std::uint32_t depth, double odds) const;
  static constexpr std::size_t kOfSource = kAgreements * kConfidences;
  std::array<Confidence, kProposerKinds * kOfSource> known_{};  // those of a source together
  std::uint64_t n_observed_ = 0;
};

}  // namespace foretoken
