#include "common/wire/link.h"

#include <gmock/gmock.h>

#include <set>
#include <tuple>

namespace foretoken::wire {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using S = LinkState;
using E = LinkEvent;
using A = LinkAction;

TimePoint at(int ms) { return TimePoint(std::chrono::seconds(1000) + milliseconds(ms)); }

TEST(LinkTable, AnswersEveryEventInEveryStateOnce) {
  std::set<std::pair<S, E>> pairs;
  for (const auto& row : link_table())
    EXPECT_TRUE(pairs.insert({row.from, row.on}).second) << name_of(row.from) << name_of(row.on);
  EXPECT_EQ(pairs.size(), 3u * 7u);
}

// Brings a fresh link into a state by events alone.
Link link_in(S state) {
  Link link{LinkTimes{}};
  link.on(E::kTick, at(0));
  if (state == S::kUp) link.on(E::kAccepted, at(0));
  if (state == S::kRefused) link.on(E::kRefusal, at(0));
  EXPECT_EQ(link.state(), state);
  return link;
}

// Row by row: the event brings the link where the row says, with the actions it says. Written out
// again on purpose.
TEST(LinkTable, DoesWhatItsRowsSay) {
  struct Case {
    S from;
    E on;
    int ms;  // when, after the state was entered
    S to;
    LinkActions actions;
  };
  const std::vector<Case> cases{
      {S::kGreeting, E::kTick, 50, S::kGreeting, {}},
      {S::kGreeting, E::kTick, 100, S::kGreeting, {A::kSendHello}},
      {S::kGreeting, E::kAccepted, 5, S::kUp, {A::kReportUp}},
      {S::kGreeting, E::kRefusal, 5, S::kRefused, {A::kReportRefused}},
      {S::kGreeting, E::kHeard, 5, S::kGreeting, {}},
      {S::kGreeting, E::kUnknown, 5, S::kGreeting, {}},
      {S::kGreeting, E::kLost, 5, S::kGreeting, {}},
      {S::kUp, E::kTick, 249, S::kUp, {}},
      {S::kUp, E::kTick, 250, S::kUp, {A::kSendHeartbeat}},
      {S::kUp, E::kTick, 999, S::kUp, {A::kSendHeartbeat}},
      {S::kUp, E::kTick, 1000, S::kGreeting, {A::kReportGone, A::kSendHello}},
      {S::kUp, E::kAccepted, 5, S::kUp, {}},
      {S::kUp, E::kRefusal, 5, S::kRefused, {A::kReportGone, A::kReportRefused}},
      {S::kUp, E::kHeard, 5, S::kUp, {}},
      {S::kUp, E::kUnknown, 5, S::kGreeting, {A::kReportGone, A::kSendHello}},
      {S::kUp, E::kLost, 5, S::kGreeting, {A::kReportGone}},
      {S::kRefused, E::kTick, 999, S::kRefused, {}},
      {S::kRefused, E::kTick, 1000, S::kGreeting, {A::kSendHello}},
      {S::kRefused, E::kAccepted, 5, S::kUp, {A::kReportUp}},
      {S::kRefused, E::kRefusal, 5, S::kRefused, {}},
      {S::kRefused, E::kHeard, 5, S::kRefused, {}},
      {S::kRefused, E::kUnknown, 5, S::kGreeting, {A::kSendHello}},
      {S::kRefused, E::kLost, 5, S::kGreeting, {}},
  };
  for (const auto& c : cases) {
    Link link = link_in(c.from);
    EXPECT_EQ(link.on(c.on, at(c.ms)), c.actions)
        << name_of(c.from) << " " << name_of(c.on) << " " << c.ms;
    EXPECT_EQ(link.state(), c.to) << name_of(c.from) << " " << name_of(c.on) << " " << c.ms;
  }
}

TEST(Link, SaysHelloAtOnceAndAgainUntilAnswered) {
  Link link{LinkTimes{}};
  EXPECT_THAT(link.on(E::kTick, at(0)), ElementsAre(A::kSendHello));
  EXPECT_THAT(link.on(E::kTick, at(99)), IsEmpty());
  EXPECT_THAT(link.on(E::kTick, at(100)), ElementsAre(A::kSendHello));
  EXPECT_EQ(link.next_tick(), at(200));
}

TEST(Link, StaysUpAsLongAsItIsAnswered) {
  Link link = link_in(S::kUp);
  for (int ms = 250; ms < 10000; ms += 250) {
    EXPECT_THAT(link.on(E::kTick, at(ms)), ElementsAre(A::kSendHeartbeat)) << ms;
    EXPECT_THAT(link.on(E::kHeard, at(ms + 10)), IsEmpty());
  }
  EXPECT_TRUE(link.up());
}

TEST(Link, NoticesSilenceAfterFourHeartbeatsAndOnlyOnce) {
  Link link = link_in(S::kUp);
  link.on(E::kHeard, at(100));
  EXPECT_EQ(link.next_tick(), at(250));
  for (int ms : {250, 500, 750, 1000})
    EXPECT_THAT(link.on(E::kTick, at(ms)), ElementsAre(A::kSendHeartbeat)) << ms;
  EXPECT_EQ(link.next_tick(), at(1100));
  EXPECT_THAT(link.on(E::kTick, at(1100)), ElementsAre(A::kReportGone, A::kSendHello));
  EXPECT_THAT(link.on(E::kTick, at(1150)), IsEmpty());
  EXPECT_THAT(link.on(E::kAccepted, at(1160)), ElementsAre(A::kReportUp));
}

TEST(Guest, FencesOffOlderLives) {
  Guest guest;
  EXPECT_EQ(guest.on_frame({5}, at(0)), Guest::Verdict::kStranger);
  EXPECT_EQ(guest.on_hello({5}, at(0)), Guest::Verdict::kNew);
  EXPECT_EQ(guest.on_hello({5}, at(1)), Guest::Verdict::kCurrent);
  EXPECT_EQ(guest.on_frame({5}, at(2)), Guest::Verdict::kCurrent);
  EXPECT_EQ(guest.on_frame({6}, at(2)), Guest::Verdict::kStranger);  // it must say hello first
  EXPECT_EQ(guest.on_hello({6}, at(3)), Guest::Verdict::kNew);
  EXPECT_EQ(guest.on_frame({5}, at(4)), Guest::Verdict::kStale);
  EXPECT_EQ(guest.on_hello({5}, at(5)), Guest::Verdict::kStale);
  EXPECT_EQ(guest.incarnation(), Incarnation{6});
}

TEST(Guest, ExpiresOnceAndMayComeBackInTheSameLife) {
  Guest guest;
  guest.on_hello({5}, at(0));
  EXPECT_FALSE(guest.expired(at(999), milliseconds(250)));
  EXPECT_TRUE(guest.expired(at(1000), milliseconds(250)));
  EXPECT_FALSE(guest.expired(at(2000), milliseconds(250)));
  EXPECT_EQ(guest.on_frame({5}, at(2000)), Guest::Verdict::kStranger);
  EXPECT_EQ(guest.on_hello({5}, at(2001)), Guest::Verdict::kNew);
}

TEST(Guest, RemembersOnlyTheLastFewLives) {
  Guest guest;
  for (std::uint64_t life = 1; life <= 1000; ++life)
    EXPECT_EQ(guest.on_hello({life}, at(0)), Guest::Verdict::kNew);
  EXPECT_EQ(guest.on_hello({995}, at(0)), Guest::Verdict::kStale);
}

}  // namespace
}  // namespace foretoken::wire
