#include "common/engine/proposal_wait.h"

#include <gtest/gtest.h>

namespace foretoken {
namespace {

using std::chrono::milliseconds;

constexpr TimePoint kBegin{};
constexpr Duration kStep = milliseconds(10);
constexpr Duration kLimit = milliseconds(40);

class ProposalWaitTest : public ::testing::Test {
 protected:
  ProposalWaitTest() {
    for (int i = 0; i < 32; ++i) length.observe_step(1, 1, kStep);
  }
  // Of tokens that are worth ten of another sequence: only their time counts.
  Duration begin(Duration by_link) {
    return wait.begin({{.arrives_in = by_link, .n_in_all = 5, .value = 10}}, 1, kBegin).wait;
  }
  void answer_comes_after(Duration waited) { wait.end(false, kBegin + waited); }
  void answer_is_missing_after(Duration waited) { wait.end(true, kBegin + waited); }

  DraftLength length{{}};
  DepthOutcomes outcomes;
  ProposalWait wait{length, outcomes, kLimit};
};

TEST_F(ProposalWaitTest, DoesNotWaitWhereNothingIsOwed) {
  EXPECT_EQ(wait.begin({}, 1, kBegin).wait, Duration::zero());
}

TEST_F(ProposalWaitTest, WaitsAsLongAsAllowedWhereTheLengthIsFixed) {
  EXPECT_EQ(wait.begin_longest(1, kBegin), kLimit);
}

// 40 ms are nothing to a target whose steps take a second.
TEST(ProposalWait, WhereStepsAreLongWaitsUpToAStepAndAHalf) {
  using std::chrono::seconds;
  DraftLength length{{}};
  for (int i = 0; i < 32; ++i) length.observe_step(1, 1, seconds(1));
  const DepthOutcomes outcomes;
  ProposalWait wait{length, outcomes, kLimit};
  const Expected owed{.arrives_in = milliseconds(400), .n_in_all = 5, .value = 10};
  EXPECT_EQ(wait.begin({owed}, 1, kBegin).wait, seconds(1));
  wait.end(false, kBegin + milliseconds(400));
  EXPECT_EQ(wait.begin_longest(1, kBegin), milliseconds(1500));
}

TEST_F(ProposalWaitTest, WaitsForWhatPaysTwiceItsTimeAndAStepAtLeast) {
  EXPECT_EQ(begin(milliseconds(2)), kStep);
  EXPECT_EQ(begin(milliseconds(8)), milliseconds(16));
}

TEST_F(ProposalWaitTest, AWaitThatWasNoChoiceTeachesNothing) {
  for (int i = 0; i < 10; ++i) {
    wait.begin_longest(1, kBegin);
    wait.end(i % 2 == 0, kBegin + kLimit);
    ASSERT_EQ(begin(milliseconds(8)), milliseconds(16)) << i;
  }
}

TEST_F(ProposalWaitTest, NeverWaitsLongerThanItsLimit) {
  ProposalWait short_of_time(length, outcomes, milliseconds(3));
  const Expected owed{.arrives_in = milliseconds(12), .n_in_all = 8, .value = 100};
  EXPECT_EQ(short_of_time.begin({owed}, 1, kBegin).wait, milliseconds(15)) << "a step and a half";
  const Expected late{.arrives_in = milliseconds(30), .n_in_all = 8, .value = 100};
  EXPECT_EQ(wait.begin({late}, 1, kBegin).wait, kStep) << "not worth it: a trial";
}

// What a stream brings is known as it comes: there is nothing to try, and nothing is learnt of it.
TEST_F(ProposalWaitTest, AStreamIsWaitedForByItsPaceAlone) {
  for (int i = 0; i < 40; ++i) outcomes.observe(0, true);
  const Expected soon{.arrives_in = milliseconds(1), .per_token = milliseconds(1), .n_in_all = 8};
  const WaitFor best = wait.begin({soon}, 1, kBegin);
  ASSERT_EQ(best.n_tokens.size(), 1u);
  EXPECT_EQ(best.wait, 2 * best.n_tokens[0] * milliseconds(1)) << "twice what it should take";
  answer_is_missing_after(best.wait);
  const Expected late{
      .arrives_in = std::chrono::seconds(1), .per_token = milliseconds(1), .n_in_all = 8};
  EXPECT_EQ(wait.begin({late}, 1, kBegin).wait, Duration::zero()) << "no trial";
}

TEST_F(ProposalWaitTest, TriesWhatSeemsNotToPayOnceInAWhile) {
  constexpr Duration kByLink = std::chrono::seconds(1);
  EXPECT_GT(begin(kByLink), Duration::zero());
  answer_is_missing_after(kStep);  // the trial has failed
  for (int i = 1; i < 32; ++i) {
    ASSERT_EQ(begin(kByLink), Duration::zero()) << i;
    answer_is_missing_after({});
  }
  EXPECT_GT(begin(kByLink), Duration::zero());
}

TEST_F(ProposalWaitTest, LearnsFromATrialWhatItsLinkDoesNotTell) {
  constexpr Duration kByLink = std::chrono::seconds(1);
  for (int i = 0; i < 50; ++i) {  // far more than there are trials
    ASSERT_GT(begin(kByLink), Duration::zero()) << i;
    answer_comes_after(milliseconds(2));
  }
}

TEST_F(ProposalWaitTest, GivesUpOnAnswersThatDoNotComeInTime) {
  for (int i = 0; i < 10; ++i) {
    ASSERT_GT(begin(milliseconds(2)), Duration::zero()) << i;
    answer_comes_after(milliseconds(2));
  }
  constexpr Duration kByLink = std::chrono::seconds(1);  // that knows it, too
  Duration hint = begin(kByLink);
  int n_waits = 0;
  for (; hint > Duration::zero() && n_waits < 100; ++n_waits) {
    answer_is_missing_after(hint);
    hint = begin(kByLink);
  }
  EXPECT_GT(n_waits, 1) << "one late answer is no reason";
  EXPECT_LT(n_waits, 40) << "a draft that is always late is waited for without end";
}

TEST_F(ProposalWaitTest, WhatIsWaitedCountsInWhatASecondYields) {
  DraftLength patient{{}};
  for (int i = 0; i < 200; ++i) {
    ProposalWait held{patient, outcomes, kLimit};
    held.begin_longest(1, kBegin);
    held.end(false, kBegin + milliseconds(5));
    patient.observe_step(1, 3, kStep);
  }
  DraftLength hasty{{}};
  for (int i = 0; i < 200; ++i) hasty.observe_step(1, 3, kStep);
  EXPECT_NEAR(patient.tokens_per_second(), 200, 1);  // 3 per 15 ms
  EXPECT_NEAR(hasty.tokens_per_second(), 300, 1);
}

}  // namespace
}  // namespace foretoken
