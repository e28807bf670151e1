#include "services/target/draft_link.h"

#include <gtest/gtest.h>

namespace foretoken {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using LinkAction = DraftLink::Action;
using LinkState = DraftLink::State;

class DraftLinkTest : public testing::Test {
 protected:
  void ask() {
    ASSERT_EQ(link.tick(now), LinkAction::kAsk);
    link.asked(now);
    ASSERT_EQ(link.state(), LinkState::kAsked);
  }
  void open() {
    ask();
    ASSERT_TRUE(link.offered(now));
    ASSERT_TRUE(link.confirmed(now));
  }
  void wait_until_due() { now = std::max(now, link.due()); }
  TimePoint now{seconds(100)};
  DraftLink link{LinkChoice::kAuto};
};

TEST_F(DraftLinkTest, GoesUpByAskingOpeningAndAWordBack) {
  open();
  EXPECT_TRUE(link.is_up());
  EXPECT_EQ(link.tick(now + seconds(1000)), LinkAction::kNone);
  EXPECT_EQ(link.due(), TimePoint::max());
}

TEST_F(DraftLinkTest, IsNeverTriedWhereZeroMqIsPinned) {
  DraftLink off(LinkChoice::kZeroMq);
  EXPECT_EQ(off.tick(now + seconds(1000)), LinkAction::kNone);
  EXPECT_EQ(off.due(), TimePoint::max());
  off.failed(now, "x");
  EXPECT_EQ(off.state(), LinkState::kOff);
  EXPECT_FALSE(off.why_not().empty());
}

TEST_F(DraftLinkTest, AsksAgainSoonWhileTheConnectionIsNotThere) {
  ASSERT_EQ(link.tick(now), LinkAction::kAsk);
  link.not_asked(now);
  EXPECT_EQ(link.tick(now), LinkAction::kNone);
  now += DraftLink::kAskAgain;
  ask();
  link.not_asked(now);  // the socket found out later
  now += DraftLink::kAskAgain;
  open();
  link.not_asked(now);
  EXPECT_TRUE(link.is_up()) << "an old report";
}

TEST_F(DraftLinkTest, TakesNothingThatItDidNotAskFor) {
  EXPECT_FALSE(link.offered(now));
  EXPECT_FALSE(link.confirmed(now));
  ask();
  EXPECT_FALSE(link.confirmed(now));
  EXPECT_TRUE(link.offered(now));
  EXPECT_FALSE(link.offered(now)) << "once";
  EXPECT_TRUE(link.confirmed(now));
  EXPECT_FALSE(link.confirmed(now));
}

TEST_F(DraftLinkTest, GivesUpOnAnOpeningThatIsNotConfirmed) {
  ask();
  ASSERT_TRUE(link.offered(now));
  wait_until_due();
  EXPECT_EQ(link.tick(now), LinkAction::kGiveUp);
  EXPECT_EQ(link.state(), LinkState::kWaiting);
  EXPECT_FALSE(link.confirmed(now)) << "too late: its link is closed";
}

TEST_F(DraftLinkTest, TriesAgainAfterPausesThatGrowToAMinute) {
  Duration former{};
  for (int i = 0; i < 20; ++i) {
    ask();
    link.failed(now, "no");
    const Duration pause = link.due() - now;
    EXPECT_GE(pause, former);
    EXPECT_LE(pause, DraftLink::kLongestPause);
    former = pause;
    wait_until_due();
  }
  EXPECT_EQ(former, DraftLink::kLongestPause);
}

TEST_F(DraftLinkTest, ALinkThatKeepsBreakingIsTriedLaterAndLaterAndOneThatLastedAtOnce) {
  for (int i = 0; i < 12; ++i) {
    open();
    link.failed(now, "torn");
    wait_until_due();
  }
  open();
  link.failed(now, "torn");
  EXPECT_EQ(link.due() - now, DraftLink::kLongestPause);
  wait_until_due();
  open();
  now += DraftLink::kLongestPause;
  link.failed(now, "the peer died");
  EXPECT_EQ(link.due() - now, DraftLink::kFirstPause);
  EXPECT_EQ(link.why_not(), "the peer died");
}

TEST_F(DraftLinkTest, ASilentDraftIsNotAskedForEver) {
  int questions = 0;
  for (const TimePoint end = now + seconds(600); now < end; wait_until_due()) {
    if (link.tick(now) == LinkAction::kAsk) {
      ++questions;
      link.asked(now);
    }
  }
  EXPECT_LT(questions, 20);
  EXPECT_GT(questions, 5);
}

}  // namespace
}  // namespace foretoken
