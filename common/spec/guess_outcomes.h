// How the guesses of a draft turn out, as the draft itself sees it: how often one of a confidence
// stands, and how often the text goes on with a runner-up of a rank where one does not. They are of
// guesses that exist, and order the rows of a pass. A target's figures, DepthOutcomes, go by depth
// alone, for guesses that are still to be asked for. Starts from the draft's own figures; counts
// fade. Pure; one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace foretoken {

class GuessOutcomes {
 public:
  static constexpr std::size_t kRanks = 3;  // of runners-up, the likeliest first

  // A guess whose turn came.
  void observe(std::uint8_t confidence, bool stood);
  // What came instead of one that did not stand; nothing: none of its runners-up.
  void observe_instead(std::optional<std::size_t> rank);

  // P(a guess of this confidence stands).
  double stands(std::uint8_t confidence) const;
  // P(the text goes on with the runner-up of this rank, where the guess does not stand).
  double comes_instead(std::size_t rank) const { return instead_[rank]; }

 private:
  static constexpr std::size_t kConfidences = 8;
  struct Counts {
    double n_tried = 0;
    double n_stood = 0;
  };
  std::array<Counts, kConfidences> by_confidence_{};
  std::array<double, kRanks> instead_{0.5, 0.15, 0.08};
};

}  // namespace foretoken
