// The order of service: shares by weight, no flow waits beyond its bound, nothing waits while
// something fits, priority within a flow alone. Random histories with fixed seeds; the bounds are
// those of start-time fair queueing, computed here from what was pushed.
#include "common/base/fair_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <vector>

namespace foretoken {
namespace {

using Item = FairQueue::Item;

RequestId id_of(std::uint64_t n) { return {7, n}; }

bool anything(const Item&) { return true; }

std::vector<std::uint64_t> served(FairQueue& queue) {
  std::vector<std::uint64_t> order;
  while (const auto item = queue.take(anything)) order.push_back(item->id.low);
  return order;
}

TEST(FairQueue, ServesOneFlowInOrderOfArrival) {
  FairQueue queue;
  for (std::uint64_t i = 1; i <= 4; ++i)
    queue.push({.id = id_of(i), .flow = 1, .cost = 9.0 - static_cast<double>(i)});
  EXPECT_EQ((std::vector<std::uint64_t>{1, 2, 3, 4}), served(queue));
  EXPECT_TRUE(queue.empty());
}

TEST(FairQueue, OneThatComesGoesBeforeTwoHundredOfAnother) {
  FairQueue queue;
  for (std::uint64_t i = 0; i < 200; ++i) queue.push({.id = id_of(i), .flow = 1, .cost = 5});
  for (int i = 0; i < 40; ++i) queue.take(anything);
  queue.push({.id = id_of(1000), .flow = 2, .cost = 50});
  EXPECT_EQ(id_of(1000), queue.take(anything)->id);
  // It has paid for ten of theirs.
  queue.push({.id = id_of(1001), .flow = 2, .cost = 50});
  int before = 0;
  while (queue.take(anything)->id != id_of(1001)) ++before;
  EXPECT_NEAR(10, before, 1);
}

TEST(FairQueue, PriorityCountsWithinAFlowAndNowhereElse) {
  FairQueue queue;
  queue.push({.id = id_of(1), .flow = 1, .cost = 1});
  queue.push({.id = id_of(2), .flow = 2, .priority = 255, .cost = 1});
  queue.push({.id = id_of(3), .flow = 1, .priority = 3, .cost = 1});
  queue.push({.id = id_of(4), .flow = 1, .priority = 3, .cost = 1});
  queue.push({.id = id_of(5), .flow = 2, .cost = 1});
  EXPECT_EQ((std::vector<std::uint64_t>{2, 3, 4, 5, 1}), served(queue));
}

TEST(FairQueue, OfEqualTurnsTheSmallerIsFirst) {
  FairQueue queue;
  queue.push({.id = id_of(1), .flow = 1, .cost = 1000});
  queue.push({.id = id_of(2), .flow = 2, .cost = 10});
  EXPECT_EQ((std::vector<std::uint64_t>{2, 1}), served(queue));
}

TEST(FairQueue, WhatDoesNotFitIsPassedAndKeepsItsTurn) {
  FairQueue queue;
  for (std::uint64_t i = 1; i <= 3; ++i) queue.push({.id = id_of(i), .flow = i, .cost = 1});
  const auto not_first = [](const Item& item) { return item.id != id_of(1); };
  EXPECT_EQ(id_of(2), queue.take(not_first)->id);
  EXPECT_EQ(id_of(3), queue.take(not_first)->id);
  EXPECT_FALSE(queue.take(not_first).has_value());
  queue.push({.id = id_of(4), .flow = 2, .cost = 1});
  EXPECT_EQ(id_of(1), queue.take(anything)->id);
}

TEST(FairQueue, WhatIsErasedIsNeitherServedNorPaid) {
  FairQueue queue;
  queue.push({.id = id_of(1), .flow = 1, .cost = 1000});
  queue.push({.id = id_of(2), .flow = 1, .cost = 1});
  queue.push({.id = id_of(3), .flow = 2, .cost = 10});
  queue.push({.id = id_of(4), .flow = 2, .cost = 10});
  EXPECT_TRUE(queue.erase(id_of(1)));
  EXPECT_FALSE(queue.erase(id_of(1)));
  EXPECT_FALSE(queue.contains(id_of(1)));
  EXPECT_EQ(3u, queue.size());
  EXPECT_EQ((std::vector<std::uint64_t>{2, 3, 4}), served(queue));
}

TEST(FairQueue, AFlowThatLeavesForAMomentDoesNotComeBackRicher) {
  FairQueue queue;
  for (std::uint64_t i = 0; i < 100; ++i) queue.push({.id = id_of(i), .flow = 1, .cost = 10});
  // One at a time, so that it never waits long: as if it had waited all along.
  int theirs = 0;
  std::uint64_t ours = 1000;
  for (int turn = 0; turn < 60; ++turn) {
    if (!queue.contains(id_of(ours))) queue.push({.id = id_of(++ours), .flow = 2, .cost = 10});
    theirs += queue.take(anything)->flow == 1 ? 1 : 0;
  }
  EXPECT_NEAR(30, theirs, 1);
}

TEST(FairQueue, WhatWasServedAtOnceCountsForThoseThatWaitNow) {
  FairQueue queue;
  for (std::uint64_t i = 0; i < 18; ++i) {
    queue.push({.id = id_of(i), .flow = 1, .cost = 10});
    queue.take(anything);
  }
  queue.push({.id = id_of(18), .flow = 1, .cost = 10});
  queue.push({.id = id_of(19), .flow = 2, .cost = 10});
  EXPECT_EQ(id_of(19), queue.take(anything)->id);
}

// Connections come and go: those that others have caught up with leave nothing behind.
TEST(FairQueue, KeepsNothingOfFlowsThatOthersHaveCaughtUpWith) {
  FairQueue queue;
  std::uint64_t n = 0;
  for (std::uint64_t flow = 1; flow <= 10'000; ++flow) {
    for (int i = 0; i < 3; ++i) {
      queue.push({.id = id_of(++n), .flow = flow, .cost = 10});
      ASSERT_TRUE(queue.take(anything).has_value());
    }
    ASSERT_LE(queue.n_remembered(), 3u) << "after flow " << flow;
  }
}

TEST(FairQueue, OfTooManyFlowsItForgetsThoseThatHadLeast) {
  FairQueue queue;
  const auto serve = [&](std::uint64_t flow, double cost) {
    queue.push({.id = id_of(flow), .flow = flow, .cost = cost});
    ASSERT_TRUE(queue.take(anything).has_value());
  };
  serve(1, 1000);
  for (std::uint64_t flow = 10; flow < 10'010; ++flow) {
    serve(flow, 10);
    ASSERT_LE(queue.n_remembered(), FairQueue::kMaxRemembered);
  }
  serve(2, 1000);
  queue.push({.id = id_of(1), .flow = 1, .cost = 10});
  queue.push({.id = id_of(2), .flow = 2, .cost = 10});
  queue.push({.id = id_of(3), .flow = 3, .cost = 20});
  EXPECT_EQ((std::vector<std::uint64_t>{3, 1, 2}), served(queue));
}

// All flows wait all the time: at every moment the cost served to two of them, by weight, differs
// by at most the largest item of each.
TEST(FairQueue, SharesAreThoseOfTheWeights) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    std::mt19937_64 dice(seed);
    const auto within = [&](int low, int high) {
      return low + static_cast<int>(dice() % static_cast<std::uint64_t>(high - low + 1));
    };
    FairQueue queue;
    const int n_flows = within(2, 8);
    std::vector<double> weight, got(static_cast<std::size_t>(n_flows), 0),
        largest(static_cast<std::size_t>(n_flows), 0);
    std::uint64_t n = 0;
    for (int f = 0; f < n_flows; ++f) weight.push_back(within(1, 40) / 8.0);
    const auto push = [&](std::size_t f) {
      const double cost = within(1, 1000);
      largest[f] = std::max(largest[f], cost / weight[f]);
      queue.push({.id = id_of(++n),
                  .flow = f,
                  .weight = weight[f],
                  .priority = within(0, 2),
                  .cost = cost});
    };
    for (std::size_t f = 0; f < weight.size(); ++f)
      for (int i = 0; i < 5; ++i) push(f);
    for (int turn = 0; turn < 3000; ++turn) {
      const auto item = queue.take(anything);
      ASSERT_TRUE(item.has_value());
      got[item->flow] += item->cost / item->weight;
      push(item->flow);
      for (std::size_t a = 0; a < weight.size(); ++a)
        for (std::size_t b = 0; b < weight.size(); ++b)
          ASSERT_LE(got[a] - got[b], largest[a] + largest[b] + 1e-6)
              << "seed " << seed << " turn " << turn;
    }
  }
}

// Whatever others do, a flow's first item is served before each other flow had more than two items'
// worth by weight, counted from when it came: it cannot starve. And a take never fails while
// something waits.
TEST(FairQueue, NobodyWaitsBeyondTheBoundAndNoTurnIsWasted) {
  for (std::uint64_t seed = 100; seed < 120; ++seed) {
    std::mt19937_64 dice(seed);
    const auto within = [&](int low, int high) {
      return low + static_cast<int>(dice() % static_cast<std::uint64_t>(high - low + 1));
    };
    constexpr double kLargest = 100;
    FairQueue queue;
    std::map<std::uint64_t, double> weight;
    for (std::uint64_t f = 0; f < 6; ++f) weight[f] = within(1, 4);
    std::uint64_t n = 0;
    // Flow that waits -> others' service.
    std::map<std::uint64_t, std::map<std::uint64_t, double>> since;
    std::map<std::uint64_t, int> n_waiting;
    for (int turn = 0; turn < 4000; ++turn) {
      for (int i = within(0, 2); i > 0; --i) {
        const auto f = static_cast<std::uint64_t>(within(0, 5));
        // Flow 5 comes seldom.
        if (f == 5 && within(0, 20) > 0) continue;
        queue.push({.id = id_of(++n),
                    .flow = f,
                    .weight = weight[f],
                    .cost = static_cast<double>(within(1, 100))});
        since.try_emplace(f);
        ++n_waiting[f];
      }
      const bool some = !queue.empty();
      const auto item = queue.take(anything);
      ASSERT_EQ(some, item.has_value());
      if (!item) continue;
      since.erase(item->flow);
      if (--n_waiting[item->flow] > 0) since.try_emplace(item->flow);
      for (auto& [flow, others] : since) {
        if (flow == item->flow) continue;
        others[item->flow] += item->cost / item->weight;
        // Its own last item may still be to pay: one of its own and two of the other.
        ASSERT_LE(others[item->flow],
                  kLargest / weight[flow] + 2 * kLargest / weight[item->flow] + 1e-6)
            << "seed " << seed << " turn " << turn;
      }
    }
  }
}

TEST(FairQueue, EqualHistoriesGiveEqualOrders) {
  std::vector<std::vector<std::uint64_t>> orders;
  for (int again = 0; again < 2; ++again) {
    std::mt19937_64 dice(5);
    FairQueue queue;
    for (std::uint64_t i = 0; i < 300; ++i)
      queue.push({.id = id_of(i),
                  .flow = dice() % 9,
                  .priority = static_cast<std::int32_t>(dice() % 3),
                  .cost = static_cast<double>(1 + dice() % 50)});
    orders.push_back(served(queue));
  }
  EXPECT_EQ(300u, orders[0].size());
  EXPECT_EQ(orders[0], orders[1]);
}

}  // namespace
}  // namespace foretoken
