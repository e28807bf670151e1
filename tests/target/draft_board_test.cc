#include "services/target/draft_board.h"

#include <gtest/gtest.h>

namespace foretoken {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using BoardState = DraftBoard::State;

class DraftBoardTest : public testing::Test {
 protected:
  void offer(std::uint64_t token) {
    ASSERT_TRUE(board.tick(now));
    board.offered(now, token);
    ASSERT_EQ(board.state(), BoardState::kOffered);
  }
  void wait_until_due() { now = std::max(now, board.due()); }
  TimePoint now{seconds(100)};
  DraftBoard board{DraftBoard::Presence::kThere};
};

TEST_F(DraftBoardTest, IsOfferedWhenTheLinkIsUpAndReadOnceThatIsAnswered) {
  EXPECT_FALSE(board.tick(now));
  EXPECT_EQ(board.due(), TimePoint::max());
  board.link_up(now);
  EXPECT_TRUE(board.is_pending());
  offer(1);
  EXPECT_TRUE(board.is_pending());
  EXPECT_FALSE(board.is_read());
  EXPECT_TRUE(board.opened(1));
  EXPECT_TRUE(board.is_read());
  EXPECT_EQ(board.due(), TimePoint::max());
  EXPECT_FALSE(board.tick(now + seconds(1000)));
}

TEST_F(DraftBoardTest, IsNeverOfferedWhereThereIsNone) {
  DraftBoard none(DraftBoard::Presence::kNone);
  none.link_up(now);
  EXPECT_FALSE(none.tick(now + seconds(1000)));
  EXPECT_FALSE(none.is_pending());
  none.link_down();
  none.link_up(now);
  EXPECT_EQ(none.state(), BoardState::kOff);
}

TEST_F(DraftBoardTest, GoesWithTheLinkAndIsOfferedAgainWithTheNext) {
  board.link_up(now);
  offer(1);
  ASSERT_TRUE(board.opened(1));
  board.link_down();
  EXPECT_FALSE(board.is_read());
  EXPECT_FALSE(board.opened(1)) << "of the link before";
  board.link_up(now);
  EXPECT_FALSE(board.opened(1));
  offer(2);
  EXPECT_FALSE(board.opened(1)) << "a view that went with its link";
  EXPECT_FALSE(board.refused(now, 1, "late"));
  EXPECT_EQ(board.state(), BoardState::kOffered);
  EXPECT_TRUE(board.opened(2));
}

TEST_F(DraftBoardTest, TakesNoAnswerToWhatWasNotOffered) {
  EXPECT_FALSE(board.opened(0));
  EXPECT_FALSE(board.refused(now, 0, "x"));
  board.link_up(now);
  EXPECT_FALSE(board.opened(0));
  EXPECT_FALSE(board.opened(1));
  offer(1);
  EXPECT_FALSE(board.opened(2));
  EXPECT_TRUE(board.opened(1));
  EXPECT_FALSE(board.opened(1)) << "once";
  EXPECT_FALSE(board.refused(now, 1, "a change of mind")) << "the link's end says so";
  EXPECT_TRUE(board.is_read());
}

TEST_F(DraftBoardTest, ARefusalHasAReasonAndIsTriedAgainLaterAndLater) {
  board.link_up(now);
  Duration former{};
  for (std::uint64_t token = 1; token <= 20; ++token) {
    offer(token);
    ASSERT_TRUE(board.refused(now, token, "no device"));
    EXPECT_EQ(board.why_not(), "no device");
    EXPECT_FALSE(board.is_pending());
    EXPECT_FALSE(board.opened(token)) << "it said no";
    EXPECT_GE(board.due() - now, former);
    former = board.due() - now;
    EXPECT_FALSE(board.tick(now));
    wait_until_due();
  }
  EXPECT_EQ(former, DraftBoard::kLongestPause);
  offer(21);
  EXPECT_TRUE(board.opened(21));
  EXPECT_EQ(board.why_not(), "");
}

TEST_F(DraftBoardTest, SilenceIsARefusalUntilTheAnswerComes) {
  board.link_up(now);
  offer(1);
  now += DraftBoard::kPatience;
  EXPECT_FALSE(board.tick(now));
  EXPECT_EQ(board.state(), BoardState::kRefused);
  EXPECT_NE(board.why_not(), "");
  EXPECT_TRUE(board.opened(1)) << "it was in the middle of a long step";
  EXPECT_TRUE(board.is_read());
}

TEST_F(DraftBoardTest, IsOfferedAgainSoonWhileTheConnectionHasNoRoom) {
  board.link_up(now);
  ASSERT_TRUE(board.tick(now));
  board.not_offered(now);
  EXPECT_FALSE(board.tick(now));
  now += DraftBoard::kOfferAgain;
  offer(1);
  board.offer_dropped(now, 7);
  EXPECT_EQ(board.state(), BoardState::kOffered) << "an old report";
  board.offer_dropped(now, 1);
  now += DraftBoard::kOfferAgain;
  offer(2);
  EXPECT_TRUE(board.opened(2));
  board.offer_dropped(now, 2);
  EXPECT_TRUE(board.is_read());
}

}  // namespace
}  // namespace foretoken
