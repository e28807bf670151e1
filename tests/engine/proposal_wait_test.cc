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
  Duration begin(Duration by_link) {
    const Expected owed{.arrives_in = by_link, .n_tokens = 3};
    return wait.begin({owed}, 1, kBegin);
  }
  void answer_comes_after(Duration waited) { wait.end(false, kBegin + waited); }
  void answer_is_missing_after(Duration waited) { wait.end(true, kBegin + waited); }

  DraftLength length{{}};
  ProposalWait wait{length, kLimit};
};

TEST_F(ProposalWaitTest, DoesNotWaitWhereNothingIsOwed) {
  EXPECT_EQ(wait.begin({}, 1, kBegin), Duration::zero());
}

TEST_F(ProposalWaitTest, WaitsAsLongAsAllowedWhereTheLengthIsFixed) {
  EXPECT_EQ(wait.begin_longest(1, kBegin), kLimit);
}

// 40 ms are nothing to a target whose steps take a second.
TEST(ProposalWait, WhereStepsAreLongWaitsUpToAStepAndAHalf) {
  using std::chrono::seconds;
  DraftLength length{{}};
  for (int i = 0; i < 32; ++i) length.observe_step(1, 1, seconds(1));
  ProposalWait wait{length, kLimit};
  const Expected owed{.arrives_in = milliseconds(400), .n_tokens = 3};
  EXPECT_EQ(wait.begin({owed}, 1, kBegin), seconds(1));
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
  ProposalWait short_of_time(length, milliseconds(3));
  const Expected owed{.arrives_in = milliseconds(12), .n_tokens = 100};
  EXPECT_EQ(short_of_time.begin({owed}, 1, kBegin), milliseconds(15)) << "a step and a half";
  const Expected late{.arrives_in = milliseconds(30), .n_tokens = 100};
  EXPECT_EQ(wait.begin({late}, 1, kBegin), kStep) << "not worth it: a trial";
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
    ProposalWait held{patient, kLimit};
    held.begin_longest(1, kBegin);
    held.end(false, kBegin + milliseconds(5));
    patient.observe_step(1, 3, kStep);
  }
  DraftLength hasty{{}};
  for (int i = 0; i < 200; ++i) hasty.observe_step(1, 3, kStep);
  // 3 tokens per 15 ms against 3 per 10 ms: what 8 ms of waiting cost lies between 1.6 and 2.4.
  const Expected answer{.arrives_in = milliseconds(8), .n_tokens = 2};
  EXPECT_GT(patient.wait({&answer, 1}, 2 * kStep, kLimit), Duration::zero());
  EXPECT_EQ(hasty.wait({&answer, 1}, 2 * kStep, kLimit), Duration::zero());
}

}  // namespace
}  // namespace foretoken
