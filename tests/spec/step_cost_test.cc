#include "common/spec/step_cost.h"

#include <gmock/gmock.h>

#include <random>

namespace foretoken {
namespace {

using std::chrono::microseconds;

// Seen often enough to be believed.
void observe_often(StepCost& cost, std::uint32_t n_rows, Duration took) {
  for (int i = 0; i < 3; ++i) cost.observe(n_rows, took);
}

TEST(StepCost, KnowsNothingAtFirst) {
  const StepCost cost;
  EXPECT_FALSE(cost.knows_anything());
  EXPECT_EQ(cost.seconds(1), 0);
}

TEST(StepCost, InterpolatesBetweenWhatWasSeen) {
  StepCost cost;
  observe_often(cost, 1, microseconds(1000));
  observe_often(cost, 5, microseconds(2000));
  EXPECT_NEAR(cost.seconds(1), 0.001, 1e-9);
  EXPECT_NEAR(cost.seconds(3), 0.0015, 1e-9);
  EXPECT_NEAR(cost.seconds(5), 0.002, 1e-9);
}

TEST(StepCost, GuessesABitMoreThanFlatBeyond) {
  StepCost cost;
  cost.observe(4, microseconds(1000));
  EXPECT_GT(cost.seconds(5), cost.seconds(4));
  EXPECT_LT(cost.seconds(5), 1.05 * cost.seconds(4));
  EXPECT_NEAR(cost.seconds(1), 0.001, 1e-9);
}

TEST(StepCost, SaysHowManyRowsATimeAllows) {
  StepCost cost;
  EXPECT_EQ(cost.rows_within(1, 40), 40u) << "nothing is known to cost anything";
  observe_often(cost, 1, microseconds(1000));
  observe_often(cost, 5, microseconds(2000));
  EXPECT_EQ(cost.rows_within(0.0009, 40), 0u);
  EXPECT_EQ(cost.rows_within(0.0011, 40), 1u);
  EXPECT_EQ(cost.rows_within(0.0016, 40), 3u);
  EXPECT_EQ(cost.rows_within(0.0016, 2), 2u);
  for (std::uint32_t n = 6; n < 40; ++n)
    EXPECT_EQ(cost.rows_within(cost.seconds(n) + 1e-9, 40), n) << "beyond what was seen, too";
}

TEST(StepCost, NeverFallsWithRows) {
  std::mt19937 random(4);
  StepCost cost;
  for (int i = 0; i < 3000; ++i) {
    const auto rows = 1 + static_cast<std::uint32_t>(random() % 700);
    cost.observe(rows, microseconds(1000 + random() % 3000));
  }
  for (std::uint32_t rows = 1; rows < 2000; ++rows)
    ASSERT_LE(cost.seconds(rows), cost.seconds(rows + 1)) << rows;
}

TEST(StepCost, FollowsAChangeAndShrugsOffAHiccup) {
  StepCost cost;
  for (int i = 0; i < 100; ++i) cost.observe(2, microseconds(1000));
  cost.observe(2, microseconds(500000));
  EXPECT_LT(cost.seconds(2), 0.0013);
  for (int i = 0; i < 100; ++i) cost.observe(2, microseconds(2000));
  EXPECT_NEAR(cost.seconds(2), 0.002, 0.0001);
}

// Another process had the cores during the very first step of its length: it must not look so dear
// that such a step is never taken again.
TEST(StepCost, AHiccupInTheFirstStepOfItsLengthIsDoubted) {
  StepCost cost;
  observe_often(cost, 1, microseconds(1000));
  cost.observe(5, microseconds(50000));
  EXPECT_LT(cost.seconds(5), 0.0014);
  cost.observe(5, microseconds(1100));
  EXPECT_NEAR(cost.seconds(5), 0.0011, 1e-9);
  cost.observe(5, microseconds(1100));
  EXPECT_NEAR(cost.seconds(5), 0.0011, 1e-9);
}

TEST(StepCost, WhatIsReallyDearIsBelievedTheThirdTime) {
  StepCost cost;
  observe_often(cost, 1, microseconds(1000));
  observe_often(cost, 5, microseconds(50000));
  EXPECT_NEAR(cost.seconds(5), 0.05, 1e-9);
}

// One step in twenty takes fifty times as long: the rest is what a step costs.
TEST(StepCost, IsThatOfTheUndisturbedStepsAmongManyHiccups) {
  for (const std::uint32_t seed : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u}) {
    std::mt19937 random(seed);
    StepCost cost;
    for (int i = 0; i < 4000; ++i) {
      const std::uint32_t rows = 1 + static_cast<std::uint32_t>(random() % 8);
      const int factor = random() % 20 == 0 ? 50 : 1;
      cost.observe(rows, factor * microseconds(1000 + 20 * rows));
      if (i < 200) continue;  // every length seen some times
      const double seconds = cost.seconds(rows);
      ASSERT_GT(seconds, 0.95e-3) << "seed " << seed << " step " << i;
      ASSERT_LT(seconds, 1.35e-3) << "seed " << seed << " step " << i;
    }
  }
}

TEST(StepCost, WhatMakesAllStepsDearerReachesThoseNotTaken) {
  StepCost cost;
  for (int i = 0; i < 50; ++i)
    cost.observe(1, microseconds(1000)), cost.observe(5, microseconds(1100));
  for (int i = 0; i < 300; ++i)
    cost.observe(5, microseconds(1100 + 5 * i));  // a context that grows
  EXPECT_GT(cost.seconds(1), 0.0018);
  EXPECT_LE(cost.seconds(1), cost.seconds(5));
}

// One row and seventeen in turns, as a flow with one sequence alone and beside another: what was
// first seen of the seventeen was wrong.
TEST(StepCost, ProportionsThatWereWrongAtFirstAreCorrectedByTurns) {
  StepCost cost(0.5);
  const auto see = [&](std::uint32_t n_rows, int micros, int times) {
    for (int i = 0; i < times; ++i) cost.observe(n_rows, std::chrono::microseconds(micros));
  };
  see(1, 1700, 100);
  see(17, 2000, 30);
  for (int turn = 0; turn < 4; ++turn) {
    see(17, 4000, 300);
    see(1, 1700, 300);
  }
  EXPECT_NEAR(4000 / 1700.0, cost.seconds(17) / cost.seconds(1), 0.1);
}

// The first steps of three rows took longer than those after them, and then both kinds take turns.
TEST(StepCost, KindsThatTakeTurnsHaveTheProportionThatIsSeen) {
  for (const int in_a_row : {1, 3}) {
    StepCost cost;
    for (int i = 0; i < 20; ++i) cost.observe(1, microseconds(1000));
    for (int i = 0; i < 20; ++i) cost.observe(3, microseconds(1200));
    for (int i = 0; i < 500; ++i) {
      const bool is_plain = i / in_a_row % 2 == 0;
      cost.observe(is_plain ? 1 : 3, microseconds(is_plain ? 1000 : 1040));
    }
    EXPECT_NEAR(cost.seconds(3) / cost.seconds(1), 1.04, 0.01) << in_a_row << " in a row";
  }
}

// The machine has another speed each time that a request without guesses ends and one with them
// begins: that is no property of the rows.
TEST(StepCost, WhatChangesAllStepsIsNotTakenForTheirProportion) {
  StepCost cost;
  for (int i = 0; i < 200; ++i) cost.observe(i % 2 == 0 ? 1 : 3, microseconds(1000 + 20 * (i % 2)));
  for (int i = 0; i < 100; ++i) cost.observe(3, microseconds(1530));
  EXPECT_NEAR(cost.seconds(3) / cost.seconds(1), 1.02, 0.1);
}

TEST(StepCost, AnyNumberOfRowsHasAPlace) {
  StepCost cost;
  for (const std::uint32_t rows : {0u, 1u, 16u, 17u, 32u, 33u, 1000000u, 0xFFFFFFFFu})
    cost.observe(rows, microseconds(10));
  EXPECT_GT(cost.seconds(0xFFFFFFFFu), 0);
  cost.observe(3, microseconds(0));
  cost.observe(3, microseconds(-5));
  EXPECT_GT(cost.seconds(3), 0);
}

}  // namespace
}  // namespace foretoken
