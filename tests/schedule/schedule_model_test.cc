// The model's values against some that were computed by hand.
#include "bench/schedule/schedule_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "bench/schedule/row_curve.h"
#include "bench/schedule/runner_up_coverage.h"

namespace foretoken::bench {
namespace {

// Sums of a few products of decimals.
constexpr double kRounding = 1e-12;

TEST(RowCurve, PassesThroughItsPointsAndGoesStraightBetweenAndBeyondThem) {
  EXPECT_DOUBLE_EQ(row_cost(0), 1.0);
  EXPECT_DOUBLE_EQ(row_cost(1), 1.0);
  EXPECT_DOUBLE_EQ(row_cost(3), 1.04);
  EXPECT_DOUBLE_EQ(row_cost(9), 1.30);
  EXPECT_NEAR(row_cost(33), 1.95, kRounding);
  EXPECT_NEAR(row_cost(50), 2.45, kRounding);  // another 17 rows at 0.5 / 17
}

TEST(ScheduleModel, ExpectsAsManyTokensAsGuessesStandAndOneMore) {
  EXPECT_NEAR(expected_tokens(0.5, 2), 1.75, kRounding);  // 1 + 0.5 + 0.25
  EXPECT_NEAR(expected_tokens(0.0, 4), 1.0, kRounding);
  EXPECT_NEAR(expected_tokens(1.0, 4), 5.0, kRounding);
}

// (1 + 0.8 + ... + 0.8^5) / (5 x 0.05 + row_cost(6) + 0), row_cost(6) = 1.08 + 0.22 / 4 = 1.135:
// 3.68928 / 1.385.
TEST(ScheduleModel, SynchronousValueIsTheBestLengthsTokensOverItsTime) {
  const ScheduleValue value = synchronous_value({.acceptance = 0.8, .cost = 0.05});
  EXPECT_EQ(value.length, 5);
  EXPECT_NEAR(value.tokens_per_round, 3.68928, 1e-9);
  EXPECT_NEAR(value.speedup, 3.68928 / 1.385, 1e-9);
}

// A guess that always stands at no cost: 17 tokens for one pass of 17 rows.
TEST(ScheduleModel, SynchronousValueOfAPerfectDraftIsTheLongestRound) {
  const ScheduleValue value = synchronous_value({.acceptance = 1, .cost = 0});
  EXPECT_EQ(value.length, kMostGuesses);
  EXPECT_NEAR(value.speedup, 17 / row_cost(17), 1e-9);
}

TEST(ScheduleModel, PlainDecodingIsBestWhereTheWayIsTooFar) {
  const ScheduleValue value =
      synchronous_value({.acceptance = 0.6, .cost = 0.1, .round_trip = 50.0 / 6});
  EXPECT_EQ(value.length, 0);
  EXPECT_EQ(value.speedup, 1);
}

// 64 rows are no cheaper together than what one more guess brings: 2 guesses of one sequence are.
TEST(ScheduleModel, ManySequencesLeaveLessToBeGained) {
  const ScheduleSetting one{.acceptance = 0.5, .cost = 0.05};
  ScheduleSetting many = one;
  many.n_sequences = 64;
  EXPECT_GT(synchronous_value(one).speedup, 1.3);
  EXPECT_EQ(synchronous_value(many).speedup, 1);
}

// Nothing is ever right: each pass brings one token, and plain decoding has the cheapest passes.
TEST(ScheduleModel, ChainOfWrongGuessesGainsNothing) {
  EXPECT_EQ(chain_value({.acceptance = 0, .cost = 0.1}, 200).speedup, 1);
}

// A draft of four guesses in the time of one pass that is always right: the target cannot get
// further than the draft does, but for its own token.
TEST(ScheduleModel, ChainIsNeverFasterThanItsDraftAndTarget) {
  const ScheduleValue value = chain_value({.acceptance = 1, .cost = 0.25}, 2000);
  EXPECT_LE(value.speedup, 4 + 1);
  EXPECT_GT(value.speedup, 4 - 0.5);
}

// Beside the target it has nothing to hide then. Noise of the simulation: about 2 %.
TEST(ScheduleModel, ChainOfADraftThatCostsNothingIsTheSynchronousSchedule) {
  for (const double acceptance : {0.3, 0.8, 1.0}) {
    const ScheduleSetting free{.acceptance = acceptance, .cost = 0};
    const double expected = synchronous_value(free).speedup;
    EXPECT_NEAR(chain_value(free).speedup, expected, 0.04 * expected) << acceptance;
  }
}

TEST(ScheduleModel, ChainAndBranchesAreContinuousAtNoCost) {
  const auto values = [](const ScheduleSetting& setting) {
    return std::array{chain_value(setting, 1000).speedup, branches_value(setting, 4, 300).speedup};
  };
  for (const double round_trip :
       {0.0, 2.5}) {  // no number of plain passes: those just miss a guess
    ScheduleSetting setting{.acceptance = 0.8, .cost = 0, .round_trip = round_trip};
    const auto free = values(setting);
    const double least = 0.95 * synchronous_value(setting).speedup;
    EXPECT_THAT(free, testing::Each(testing::Ge(least))) << round_trip;
    for (const double cost : {1e-300, 1e-4}) {
      setting.cost = cost;
      const auto cheap = values(setting);
      for (const std::size_t i : {0, 1})
        EXPECT_NEAR(cheap[i], free[i], 0.05 * free[i]) << i << ", " << cost << ", " << round_trip;
    }
  }
}

TEST(ScheduleModel, ChainHidesADistanceThatTheSynchronousScheduleWaitsFor) {
  const ScheduleSetting far{.acceptance = 0.9, .cost = 0.2, .round_trip = 50.0 / 60};
  EXPECT_GT(chain_value(far).speedup, 1.3 * synchronous_value(far).speedup);
}

TEST(RunnerUpCoverage, RisesWithAcceptanceAndRankAndIsNoneOfADraftThatIsNeverRight) {
  for (std::size_t rank = 0; rank < 3; ++rank) EXPECT_EQ(runner_up_coverage(0, rank), 0);
  double before = 0;
  for (double a = 0.05; a <= 1; a += 0.05) {
    const double first = runner_up_coverage(a, 0), second = runner_up_coverage(a, 1) - first,
                 third = runner_up_coverage(a, 2) - first - second;
    EXPECT_GT(first, second) << a;
    EXPECT_GT(second, third) << a;
    EXPECT_GT(third, 0) << a;
    EXPECT_LE(first + second + third, 1) << a;
    EXPECT_GT(first, before) << a;
    before = first;
  }
  EXPECT_NEAR(runner_up_coverage(0.8, 0), 0.55, kRounding);
}

// With a text for all that may come of a pass nothing is missed: it is a chain that never breaks.
TEST(ScheduleModel, BranchesAreWorthMoreThanTheChainUnlessTheyAreNone) {
  const ScheduleSetting setting{.acceptance = 0.8, .cost = 0.1, .round_trip = 0.5};
  EXPECT_GT(branches_value(setting, 4).speedup, 1.1 * chain_value(setting).speedup);
  EXPECT_GE(branches_value(setting, 16).speedup, branches_value(setting, 4).speedup);
  EXPECT_EQ(branches_value({.acceptance = 0, .cost = 0.1}, 4, 200).speedup, 1);
}

}  // namespace
}  // namespace foretoken::bench
