// How the proposals for one sequence do beside what is known of their kind: the means of many
// sequences are wrong for each. Of the last outcomes it has what was expected and what came, and
// gives a factor for the odds p / (1 - p) of its next tokens; 1 where they came as expected. Few
// outcomes say little, so that it begins at 1. Pure; one thread.
#pragma once

#include <array>
#include <cstddef>

namespace foretoken {

class SequenceOdds {
 public:
  // A token that was expected to stand with this probability.
  void observe(double expected, bool stood) {
    last_[n_++ % kOutcomes] = {expected, stood};
    Sums sums;
    const std::size_t n = n_ < kOutcomes ? n_ : kOutcomes;
    for (std::size_t i = 0; i < n; ++i) {
      sums.expected += last_[i].expected;
      sums.stood += last_[i].stood ? 1 : 0;
    }
    const auto all = static_cast<double>(n);
    factor_ = (sums.stood + kWeight) / (sums.expected + kWeight) * (all - sums.expected + kWeight) /
              (all - sums.stood + kWeight);
  }
  double factor() const { return factor_; }

 private:
  static constexpr std::size_t kOutcomes = 32;
  static constexpr double kWeight = 4;  // outcomes of either sort that its kind is worth
  struct Outcome {
    double expected = 0;
    bool stood = false;
  };
  struct Sums {
    double expected = 0;
    double stood = 0;
  };
  std::array<Outcome, kOutcomes> last_{};
  std::size_t n_ = 0;
  double factor_ = 1;
};

}  // namespace foretoken
