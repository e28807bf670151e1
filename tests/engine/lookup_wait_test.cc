#include "common/engine/lookup_wait.h"

#include <gtest/gtest.h>

namespace foretoken {
namespace {

using std::chrono::microseconds;

constexpr TimePoint kBeforePass{};
constexpr Duration kWholePass = std::chrono::milliseconds(8);
constexpr Duration kMuch = std::chrono::milliseconds(8);  // saved by the answers

TEST(LookupWait, WaitsWhereTheAnswersSaveMoreTimeThanTheyTake) {
  LookupWait wait;
  EXPECT_EQ(wait.begin(microseconds(50), kWholePass, kBeforePass), Duration::zero());
  EXPECT_FALSE(wait.is_waiting());
  EXPECT_GT(wait.begin(kMuch, kWholePass, kBeforePass), microseconds(200));
  EXPECT_TRUE(wait.is_waiting());
  EXPECT_EQ(wait.end(/*is_owed=*/false, kBeforePass + microseconds(150)), microseconds(150));
  EXPECT_FALSE(wait.is_waiting());
  EXPECT_EQ(wait.end(/*is_owed=*/false, kBeforePass + std::chrono::milliseconds(1)),
            Duration::zero());
}

TEST(LookupWait, NeverWaitsLongerThanTheFourthPartOfAPass) {
  LookupWait wait;
  EXPECT_EQ(wait.begin(kMuch, std::chrono::milliseconds(2), kBeforePass), microseconds(500));
  wait.end(/*is_owed=*/false, kBeforePass + microseconds(500));
  EXPECT_EQ(wait.begin(kMuch, microseconds(400), kBeforePass), Duration::zero());
}

TEST(LookupWait, LearnsHowLongAnswersTake) {
  LookupWait wait;
  for (int i = 0; i < 64; ++i) {
    ASSERT_GT(wait.begin(kMuch, kWholePass, kBeforePass), Duration::zero());
    wait.end(/*is_owed=*/false, kBeforePass + std::chrono::milliseconds(1));
  }
  EXPECT_EQ(wait.begin(microseconds(900), kWholePass, kBeforePass), Duration::zero());
  EXPECT_EQ(wait.begin(kMuch, kWholePass, kBeforePass), kWholePass / 4);
}

// A memory that is far away, or stopped, costs few waits; one that is back is waited for again.
TEST(LookupWait, StopsWaitingForAnswersThatComeTooLateAndTriesAgain) {
  LookupWait wait;
  int n_waits = 0;
  for (int i = 0; i < 1000; ++i) {
    const Duration most = wait.begin(kMuch, kWholePass, kBeforePass);
    if (most == Duration::zero()) continue;
    ++n_waits;
    wait.end(/*is_owed=*/true, kBeforePass + most);
  }
  EXPECT_GT(n_waits, 12);
  EXPECT_LT(n_waits, 40);
  int n_late = 0;
  while (wait.begin(kMuch, kWholePass, kBeforePass) == Duration::zero()) ASSERT_LT(++n_late, 1000);
}

}  // namespace
}  // namespace foretoken
