// Flows that share a pass: each keeps its share of the pace it would have alone.
#include "common/engine/fair_rows.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace foretoken {
namespace {

// A pass costs `fixed` and so much per row, in milliseconds.
StepCost measured(double fixed, double per_row, std::uint32_t most = 512) {
  StepCost cost;
  for (int times = 0; times < 4; ++times)
    for (std::uint32_t n = 1; n <= most; n += n < 16 ? 1 : n / 8)
      cost.observe(n, std::chrono::duration_cast<Duration>(
                          std::chrono::duration<double, std::milli>(fixed + per_row * n)));
  return cost;
}

TEST(FairRows, ALoneFlowAndAnUnmeasuredStepHaveNoBound) {
  const std::vector<FlowDemand> one{{.rows = 64}};
  const std::vector<FlowDemand> two{{.rows = 1}, {.rows = 64}};
  EXPECT_TRUE(fair_rows(one, measured(0, 1)).empty());
  EXPECT_TRUE(fair_rows(two, StepCost{}).empty());
}

TEST(FairRows, WhereRowsAreFreeNothingIsTakenFromAnyone) {
  const std::vector<FlowDemand> two{{.rows = 1}, {.rows = 64}};
  EXPECT_TRUE(fair_rows(two, measured(10, 0.01)).empty());
}

TEST(FairRows, EqualFlowsHaveNoBound) {
  const std::vector<FlowDemand> flows(16, FlowDemand{.rows = 5});
  EXPECT_TRUE(fair_rows(flows, measured(1, 0.5)).empty());
}

// A row alone takes 2 ms and an even pass of two rows 3, so a pass may take 3.5 ms of the 4, which
// 2 rows do; and each flow has its least. A row alone takes 1.55 ms, two take 1.65: 2.375 ms
// of 3.1, which 9 rows do.
TEST(FairRows, ManyRowsAreCutToTheShareOfOne) {
  const std::vector<FlowDemand> two{{.rows = 64}, {.rows = 1}};
  EXPECT_EQ(fair_rows(two, measured(1, 1)), (std::vector<std::uint32_t>{2, 2}));
  EXPECT_EQ(fair_rows(two, measured(1.45, 0.1)), (std::vector<std::uint32_t>{8, 2}));
}

// Nine rows take 1.9 times as long as one: within the share of one, but that leaves no time for
// what is not a pass.
TEST(FairRows, HalfOfTheTimeBeyondAnEvenPassIsNotForRows) {
  const std::vector<FlowDemand> two{{.rows = 8}, {.rows = 1}};
  const StepCost cost = measured(0.8, 0.1);
  const auto rows = fair_rows(two, cost);
  ASSERT_EQ(2u, rows.size());
  EXPECT_LT(rows[0], 8u);
  EXPECT_LE(cost.seconds(rows[0] + 1), 1.0e-3 + 0.5 * (1.8e-3 - 1.0e-3) + 1e-9);
}

// A weight of four leaves the other a fifth, not nothing: 65 rows take 6 % longer than one.
TEST(FairRows, AHeavyFlowLeavesRoomForCheapRows) {
  const std::vector<FlowDemand> flows{{.weight = 4, .rows = 1}, {.weight = 1, .rows = 64}};
  EXPECT_TRUE(fair_rows(flows, measured(10, 0.01)).empty());
  const auto rows = fair_rows(flows, measured(10, 0.1));
  ASSERT_EQ(2u, rows.size());
  EXPECT_GE(rows[1], 10u);
}

// Where rows cost all of a pass, two equal flows take twice the time of one, and nothing would be
// gained by fewer rows for both.
TEST(FairRows, EqualFlowsAreNotCutWhateverRowsCost) {
  const std::vector<FlowDemand> two{{.rows = 8}, {.rows = 8}};
  EXPECT_TRUE(fair_rows(two, measured(0, 1)).empty());
}

TEST(FairRows, AWeightIsAShare) {
  // Three quarters of the time for the first: a pass may take 4/3 of its own.
  const std::vector<FlowDemand> flows{{.weight = 3, .rows = 60}, {.weight = 1, .rows = 60}};
  const auto rows = fair_rows(flows, measured(0, 1));
  ASSERT_EQ(2u, rows.size());
  EXPECT_NEAR(60, rows[0], 2);
  EXPECT_NEAR(20, rows[1], 2);
}

TEST(FairRows, AFlowThatWantsNothingTakesNoShare) {
  const std::vector<FlowDemand> flows{{.rows = 0}, {.rows = 8}, {.rows = 8}};
  EXPECT_TRUE(fair_rows(flows, measured(1, 1)).empty());
}

// Whatever they want: no flow's pass gets longer than its share allows, but for the least rows; and
// what one leaves the others may have.
TEST(FairRows, EachFlowKeepsItsShareOfItsOwnPace) {
  for (std::uint32_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 rng(seed);
    const auto draw = [&](int low, int high) {
      return static_cast<std::uint32_t>(std::uniform_int_distribution<int>(low, high)(rng));
    };
    const StepCost cost = measured(draw(0, 20), 0.05 * draw(1, 40));
    std::vector<FlowDemand> flows(draw(2, 9));
    double weights = 0;
    for (FlowDemand& flow : flows) {
      flow = {.weight = 0.25 * draw(1, 12), .rows = draw(1, 3) == 1 ? draw(20, 120) : draw(1, 8)};
      weights += flow.weight;
    }
    const auto rows = fair_rows(flows, cost);
    std::uint32_t all = 0, n_least = 0;
    for (std::size_t i = 0; i < flows.size(); ++i) {
      const std::uint32_t given = rows.empty() ? flows[i].rows : std::min(rows[i], flows[i].rows);
      EXPECT_GE(given, std::min(flows[i].rows, kLeastFlowRows));
      all += given;
      n_least += given <= kLeastFlowRows ? given : 0;  // where the share is less than that
    }
    if (all == n_least) continue;
    for (const FlowDemand& flow : flows) {
      EXPECT_LE(cost.seconds(all - n_least),
                weights / flow.weight * cost.seconds(flow.rows) + 1e-9);
    }
  }
}

}  // namespace
}  // namespace foretoken
