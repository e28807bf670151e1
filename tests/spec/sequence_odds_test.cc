#include "common/spec/sequence_odds.h"

#include <gtest/gtest.h>

namespace foretoken {
namespace {

double factor_after(int n, double expected, int stood_in_four) {
  SequenceOdds odds;
  for (int i = 0; i < n; ++i) odds.observe(expected, i % 4 < stood_in_four);
  return odds.factor();
}

TEST(SequenceOdds, IsOneWhereTokensComeAsExpected) {
  EXPECT_EQ(SequenceOdds{}.factor(), 1);
  EXPECT_NEAR(factor_after(32, 0.75, 3), 1, 1e-9);
  EXPECT_NEAR(factor_after(1000, 0.25, 1), 1, 1e-9);
}

TEST(SequenceOdds, GrowsWithWhatIsBetterThanExpectedAndFallsWithWhatIsWorse) {
  EXPECT_GT(factor_after(32, 0.5, 4), 5);
  EXPECT_LT(factor_after(32, 0.5, 0), 0.2);
  EXPECT_GT(factor_after(32, 0.5, 3), 1.5);
}

TEST(SequenceOdds, FewOutcomesSayLittle) {
  EXPECT_LT(factor_after(2, 0.5, 4), 2.5);
  EXPECT_GT(factor_after(2, 0.5, 0), 0.4);
}

TEST(SequenceOdds, ForgetsWhatIsLongAgo) {
  SequenceOdds odds;
  for (int i = 0; i < 100; ++i) odds.observe(0.5, false);
  for (int i = 0; i < 32; ++i) odds.observe(0.5, true);
  EXPECT_GT(odds.factor(), 5);
}

}  // namespace
}  // namespace foretoken
