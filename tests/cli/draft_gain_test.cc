// What guessing may gain, against figures that were worked out by hand.
#include "services/cli/draft_gain.h"

#include <gmock/gmock.h>

namespace foretoken::cli {
namespace {

using ::testing::HasSubstr;

TEST(BestRound, IsTokensARoundOverItsTime) {
  // One guess that is always right, at half the cost: 2 tokens in 1.5 steps.
  EXPECT_DOUBLE_EQ(best_round(1, 0.5, 1).gain, 2 / 1.5);
  // Eight of them: 9 tokens in 5 steps.
  EXPECT_EQ(best_round(1, 0.5, 8).n_guesses, 8);
  EXPECT_DOUBLE_EQ(best_round(1, 0.5, 8).gain, 9 / 5.0);
  // At a half and a tenth: 1.5/1.1, 1.75/1.2, 1.875/1.3, 1.9375/1.4: two guesses are best.
  EXPECT_EQ(best_round(0.5, 0.1, 8).n_guesses, 2);
  EXPECT_DOUBLE_EQ(best_round(0.5, 0.1, 8).gain, 1.75 / 1.2);
}

TEST(BestRound, GainsWhereMoreGuessesAreRightThanAStepCosts) {
  for (const double cost : {0.1, 0.349, 0.5, 0.9})
    for (const int most : {1, 2, 8}) {
      EXPECT_LE(best_round(cost, cost, most).gain, 1) << cost;
      EXPECT_LT(best_round(cost - 0.01, cost, most).gain, 1) << cost;
      EXPECT_GT(best_round(cost + 0.01, cost, most).gain, 1) << cost;
    }
}

TEST(SelfDraftPrediction, HasTheGainForSharesOfRightGuessesAndTheShareWithout) {
  // Eight guesses: 9/3; two at 0.8 and a quarter: 2.44/1.5 = 1.627, three 2.952/1.75 = 1.687, four
  // 3.3616/2 = 1.681.
  const std::string line = self_draft_prediction(0.25, 8);
  EXPECT_THAT(line, HasSubstr("a draft step reads 25.0 % of a target step's bytes; predicted, "
                              "greedy: 3.00 x plain decoding with every guess right, "));
  EXPECT_THAT(line, HasSubstr(", 1.69 x with 80 %, "));
  EXPECT_THAT(line, HasSubstr(", no gain with 25.0 % or fewer"));
}

TEST(SelfDraftPrediction, LeavesOutSharesThatGainNothing) {
  const std::string line = self_draft_prediction(0.75, 1);
  EXPECT_THAT(line, HasSubstr("1.14 x plain decoding with every guess right, 1.09 x with 90 %, "
                              "1.03 x with 80 %, no gain with 75.0 % or fewer"));
  EXPECT_THAT(self_draft_prediction(1.0, 8), HasSubstr("predicted: no gain over plain decoding"));
}

}  // namespace
}  // namespace foretoken::cli
