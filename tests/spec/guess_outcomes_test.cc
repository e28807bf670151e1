#include "common/spec/guess_outcomes.h"

#include <gtest/gtest.h>

#include <random>

namespace foretoken {
namespace {

TEST(GuessOutcomes, BeginsWithTheDraftsOwnFigureAndEndsWithWhatWasCounted) {
  GuessOutcomes outcomes;
  EXPECT_NEAR(outcomes.stands(204), 0.8, 1e-9);
  std::mt19937 random(3);
  for (int i = 0; i < 2000; ++i) outcomes.observe(204, std::bernoulli_distribution(0.3)(random));
  // The last 256 count: a deviation of 0.029.
  EXPECT_NEAR(outcomes.stands(204), 0.3, 0.1);
  EXPECT_NEAR(outcomes.stands(20), 20 / 255.0, 1e-9) << "of that confidence alone";
}

TEST(GuessOutcomes, LearnsWhichRunnerUpComes) {
  GuessOutcomes outcomes;
  std::mt19937 random(3);
  for (int i = 0; i < 4000; ++i) {
    const auto kind = random() % 10;
    outcomes.observe_instead(kind < 2   ? std::optional<std::size_t>(0)
                             : kind < 5 ? std::optional<std::size_t>(1)
                                        : std::nullopt);
  }
  // About the last 128 count: a deviation of 0.04.
  EXPECT_NEAR(outcomes.comes_instead(0), 0.2, 0.13);
  EXPECT_NEAR(outcomes.comes_instead(1), 0.3, 0.13);
  EXPECT_LT(outcomes.comes_instead(2), 0.01);
}

}  // namespace
}  // namespace foretoken
