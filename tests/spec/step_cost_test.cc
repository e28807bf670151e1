#include "common/spec/step_cost.h"

#include <gmock/gmock.h>

#include <random>

namespace foretoken {
namespace {

using std::chrono::microseconds;

TEST(StepCost, KnowsNothingAtFirst) {
  const StepCost cost;
  EXPECT_FALSE(cost.knows_anything());
  EXPECT_EQ(cost.seconds(1), 0);
}

TEST(StepCost, InterpolatesBetweenWhatWasSeen) {
  StepCost cost;
  cost.observe(1, microseconds(1000));
  cost.observe(5, microseconds(2000));
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

TEST(StepCost, WhatMakesAllStepsDearerReachesThoseNotTaken) {
  StepCost cost;
  for (int i = 0; i < 50; ++i)
    cost.observe(1, microseconds(1000)), cost.observe(5, microseconds(1100));
  for (int i = 0; i < 300; ++i)
    cost.observe(5, microseconds(1100 + 5 * i));  // a context that grows
  EXPECT_GT(cost.seconds(1), 0.0018);
  EXPECT_LE(cost.seconds(1), cost.seconds(5));
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
