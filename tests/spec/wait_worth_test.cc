#include "common/spec/wait_worth.h"

#include <gtest/gtest.h>

namespace foretoken {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr Duration kPass = milliseconds(10);

// Passes of 10 ms, whatever their rows; plain decoding before.
class WaitWorth : public ::testing::Test {
 protected:
  WaitWorth() {
    for (std::uint32_t n_rows = 1; n_rows <= 32; ++n_rows)
      for (int i = 0; i < 8; ++i) cost.observe(n_rows, kPass);
  }
  // So often tokens stand: the first of a round, and those after it.
  void teach(double first, double later) {
    for (int i = 0; i < 2000; ++i)
      for (std::uint32_t depth = 0; depth < 16; ++depth)
        outcomes.observe(depth, i % 100 < 100 * (depth == 0 ? first : later));
  }
  Duration wait(const std::vector<Expected>& expected) {
    terms.n_running = static_cast<std::uint32_t>(expected.size());
    return best_wait(expected, terms, outcomes, cost).wait;
  }

  StepCost cost;
  DepthOutcomes outcomes;
  WaitTerms terms{.tokens_per_second = 100, .limit = milliseconds(100)};
};

TEST_F(WaitWorth, NothingIsWaitedForWhereNothingComes) {
  EXPECT_EQ(wait({}), Duration::zero());
  EXPECT_EQ(wait({{.arrives_in = milliseconds(1), .n_at_hand = 4, .n_in_all = 4}}),
            Duration::zero());
}

TEST_F(WaitWorth, ALateAnswerIsWaitedForOnlyWhereItBringsMoreThanTheTimeWould) {
  teach(0.5, 0.8);
  EXPECT_EQ(wait({{.arrives_in = milliseconds(2), .n_in_all = 8}}), milliseconds(2));
  EXPECT_EQ(wait({{.arrives_in = milliseconds(60), .n_in_all = 8}}), Duration::zero());
  teach(0.02, 0.5);
  EXPECT_EQ(wait({{.arrives_in = milliseconds(2), .n_in_all = 8}}), Duration::zero());
}

// Rows beyond the third cost half a pass each: of a long answer two tokens are verified, and it is
// worth as much as an answer of two.
TEST_F(WaitWorth, OfALongAnswerCountsWhatWouldBeVerified) {
  StepCost dear;
  for (std::uint32_t n_rows = 1; n_rows <= 9; ++n_rows)
    for (int i = 0; i < 8; ++i) dear.observe(n_rows, kPass * (n_rows < 4 ? 2 : n_rows - 1) / 2);
  cost = dear;
  teach(0.5, 0.5);
  EXPECT_EQ(wait({{.arrives_in = milliseconds(2), .n_in_all = 2}}), milliseconds(2));
  EXPECT_EQ(wait({{.arrives_in = milliseconds(2), .n_in_all = 8}}), milliseconds(2));
}

// Its tokens are as many after a pass without them, and that pass brings one more.
TEST_F(WaitWorth, AnAnswerThatOutlastsAPassIsWaitedForNoLongerThanAPass) {
  teach(0.9, 0.9);
  EXPECT_EQ(wait({{.arrives_in = milliseconds(4), .n_in_all = 8}}), milliseconds(4));
  EXPECT_EQ(wait({{.arrives_in = milliseconds(11), .n_in_all = 8}}), Duration::zero());
  teach(0.5, 1);
  EXPECT_EQ(wait({{.arrives_in = milliseconds(11), .n_in_all = 8}}), milliseconds(11));
}

TEST_F(WaitWorth, NoWaitIsLongerThanItsLimit) {
  teach(0.5, 0.9);
  terms.limit = milliseconds(2);
  EXPECT_EQ(wait({{.arrives_in = microseconds(2001), .n_in_all = 8}}), Duration::zero());
  EXPECT_EQ(wait({{.arrives_in = milliseconds(2), .n_in_all = 8}}), milliseconds(2));
}

TEST_F(WaitWorth, AnswersAreWaitedForWhileEachIsWorthItsTime) {
  teach(0.5, 0.8);
  const Expected soon{.arrives_in = milliseconds(1), .n_in_all = 4};
  Expected later{.arrives_in = milliseconds(3), .n_in_all = 4};
  EXPECT_EQ(wait({soon, later}), milliseconds(3));
  later.n_in_all = 0;
  EXPECT_EQ(wait({soon, later}), milliseconds(1));
  later = {.arrives_in = milliseconds(90), .n_in_all = 4};
  EXPECT_EQ(wait({soon, later}), milliseconds(1));
}

// The first tokens of a chain are worth a moment each, the later ones stand too seldom.
TEST_F(WaitWorth, OfAStreamTheFirstTokensAreWaitedFor) {
  teach(0.8, 0.8);
  terms.tokens_per_second = 250;
  const Expected stream{
      .arrives_in = milliseconds(1), .per_token = microseconds(500), .n_in_all = 16};
  const WaitFor best = best_wait({&stream, 1}, terms, outcomes, cost);
  ASSERT_EQ(best.n_tokens.size(), 1u);
  EXPECT_GE(best.n_tokens[0], 2u);
  EXPECT_LE(best.n_tokens[0], 10u);
  EXPECT_EQ(best.wait, milliseconds(1) + (best.n_tokens[0] - 1) * microseconds(500));
}

TEST_F(WaitWorth, AStreamThatIsLongEnoughIsNotWaitedFor) {
  teach(0.8, 0.8);
  terms.tokens_per_second = 250;
  EXPECT_EQ(wait({{.arrives_in = microseconds(500),
                   .per_token = microseconds(500),
                   .n_at_hand = 12,
                   .n_in_all = 16}}),
            Duration::zero());
}

TEST_F(WaitWorth, WhatIsAtHandOfOtherSourcesIsNotGained) {
  teach(0.5, 0.8);
  EXPECT_GT(wait({{.arrives_in = milliseconds(5), .n_in_all = 4, .at_hand = 0}}), Duration::zero());
  EXPECT_EQ(wait({{.arrives_in = milliseconds(5), .n_in_all = 4, .at_hand = 4}}), Duration::zero());
}

TEST_F(WaitWorth, ASequenceOfWhichLittleStandsIsNotWaitedFor) {
  teach(0.5, 0.8);
  EXPECT_EQ(wait({{.arrives_in = milliseconds(5), .n_in_all = 4, .odds = 0.05}}), Duration::zero());
}

TEST_F(WaitWorth, AChainThatMayBeVoidIsWorthLess) {
  teach(0.5, 0.8);
  EXPECT_GT(wait({{.arrives_in = milliseconds(6), .holds = 1, .n_in_all = 8}}), Duration::zero());
  EXPECT_EQ(wait({{.arrives_in = milliseconds(6), .holds = 0.2, .n_in_all = 8}}), Duration::zero());
}

// A pass of seconds and tokens that came in one burst.
TEST_F(WaitWorth, ManyTokensInAPassAreNoMoreThanThereCanBe) {
  teach(0.8, 0.8);
  const Expected burst{.arrives_in = {}, .per_token = std::chrono::nanoseconds(1), .n_in_all = 8};
  for (int i = 0; i < 50; ++i) cost.observe(1, std::chrono::seconds(60));
  const WaitFor best = best_wait({&burst, 1}, terms, outcomes, cost);
  EXPECT_LE(best.n_tokens.at(0), 8u);
}

TEST(DepthOutcomes, AChainIsWorthItsTokensByTheirRates) {
  DepthOutcomes outcomes;
  for (int i = 0; i < 4000; ++i) {
    outcomes.observe(0, i % 2 == 0);
    outcomes.observe(1, i % 4 != 0);
  }
  EXPECT_NEAR(outcomes.rate_at(0), 0.5, 0.02);
  const ChainWorth two = outcomes.chain(2);
  EXPECT_NEAR(two.survival, 0.5 * 0.75, 0.02);
  EXPECT_NEAR(two.tokens, 0.5 + 0.5 * 0.75, 0.03);
  EXPECT_LT(outcomes.chain(2, 0.5).tokens, two.tokens);
  EXPECT_EQ(outcomes.chain(0).survival, 1);
}

// A depth that was seldom reached is taken to be as the one before it.
TEST(DepthOutcomes, ADepthThatIsNotKnownIsLikeTheOneBefore) {
  DepthOutcomes outcomes;
  for (int i = 0; i < 4000; ++i) outcomes.observe(0, i % 4 == 0);
  EXPECT_NEAR(outcomes.rate_at(7), 0.25, 0.02);
}

}  // namespace
}  // namespace foretoken
