#include "common/runtime/progress.h"

#include <gtest/gtest.h>

namespace foretoken {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const TimePoint kStart = TimePoint{} + seconds(100);

TEST(Progress, AServiceThatWaitsIsNotBusy) {
  Progress progress;
  progress.begin(kStart);
  progress.wait(kStart + milliseconds(3));
  const auto view = progress.view(kStart + seconds(1000));
  EXPECT_EQ(view.turn, 1u);
  EXPECT_EQ(view.busy, Duration{});
  EXPECT_EQ(view.activity, wire::Activity::kWaiting);
  EXPECT_FALSE(view.is_stuck());
}

TEST(Progress, ATurnIsStuckBeyondTheFloorWhileNothingIsMeasured) {
  Progress progress;
  progress.set_floor(seconds(30));
  progress.begin(kStart);
  progress.doing(wire::Activity::kStep);
  EXPECT_FALSE(progress.view(kStart + seconds(30)).is_stuck());
  const auto view = progress.view(kStart + seconds(31));
  EXPECT_TRUE(view.is_stuck());
  EXPECT_EQ(view.activity, wire::Activity::kStep);
}

TEST(Progress, TheBoundGrowsWithTheLongestTurnAndShrinksAgain) {
  Progress progress;
  progress.set_floor(seconds(30));
  TimePoint now = kStart;
  const auto turn = [&](Duration took) {
    progress.begin(now);
    now += took;
  };
  turn(seconds(10));
  progress.begin(now);
  EXPECT_EQ(progress.view(now).bound, seconds(80));
  EXPECT_FALSE(progress.view(now + seconds(79)).is_stuck());
  EXPECT_TRUE(progress.view(now + seconds(81)).is_stuck());
  for (int i = 0; i < 1000; ++i) turn(milliseconds(1));
  EXPECT_EQ(progress.view(now).bound, seconds(30)) << "long turns of long ago are forgotten";
}

TEST(Progress, WaitingIsNoTurn) {
  Progress progress;
  progress.set_floor(seconds(1));
  progress.begin(kStart);
  progress.wait(kStart);
  progress.begin(kStart + seconds(500));
  EXPECT_EQ(progress.view(kStart + seconds(500)).bound, seconds(1));
  EXPECT_EQ(progress.view(kStart + seconds(500)).turn, 2u);
}

}  // namespace
}  // namespace foretoken
