#include "common/base/running_clock.h"

#include <gtest/gtest.h>

namespace foretoken {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;

constexpr TimePoint kBegin{std::chrono::hours(1)};

TEST(RunningClock, CountsTheTimeBetweenLooks) {
  RunningClock clock(milliseconds(500));
  TimePoint now = kBegin;
  const TimePoint begin = clock.at(now);
  for (int i = 0; i < 100; ++i) clock.at(now += milliseconds(30));
  EXPECT_EQ(clock.at(now) - begin, milliseconds(3000));
}

TEST(RunningClock, CountsLittleOfAPause) {
  RunningClock clock(milliseconds(500));
  const TimePoint begin = clock.at(kBegin);
  EXPECT_EQ(clock.at(kBegin + minutes(3)) - begin, milliseconds(500));
  EXPECT_EQ(clock.at(kBegin + minutes(3) + milliseconds(7)) - begin, milliseconds(507));
}

TEST(RunningClock, NeverGoesBack) {
  RunningClock clock(milliseconds(500));
  const TimePoint begin = clock.at(kBegin);
  EXPECT_EQ(clock.at(kBegin - milliseconds(100)), begin);
  EXPECT_EQ(clock.at(kBegin + milliseconds(100)) - begin, milliseconds(100));
}

}  // namespace
}  // namespace foretoken
