#include "common/transport/waiting_answers.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace foretoken {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const TimePoint kStart{std::chrono::hours(1)};

Peer client(const std::string& name) { return {.socket = 1, .routing = name}; }

// Takes as many as it is told, of whom it is told.
struct Wire {
  std::vector<std::string> taken;
  std::size_t room = 0;
  std::string only;  // empty: all
  SendResult otherwise = SendResult::kBusy;

  WaitingAnswers::Send send() {
    return [this](const Peer& to, const Frames& frames) {
      if (room == 0 || (!only.empty() && to.routing != only)) return otherwise;
      --room;
      taken.push_back(frames.front());
      return SendResult::kSent;
    };
  }
};

TEST(WaitingAnswers, LeaveInOrderAsThereIsRoom) {
  WaitingAnswers waiting;
  Wire wire;
  for (const char* text : {"a", "b", "c"}) ASSERT_TRUE(waiting.keep(client("x"), {text}, kStart));
  wire.room = 2;
  waiting.send_again(wire.send(), waiting.due());
  EXPECT_EQ(wire.taken, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(waiting.waits(client("x")));
  wire.room = 2;
  waiting.send_again(wire.send(), waiting.due());
  EXPECT_EQ(wire.taken.back(), "c");
  EXPECT_FALSE(waiting.waits(client("x")));
  EXPECT_TRUE(waiting.empty());
  EXPECT_EQ(waiting.n_bytes(), 0u);
}

// A thousand clients that do not read are no work of every millisecond.
TEST(WaitingAnswers, AreTriedMoreAndMoreRarelyWhileNoneIsTaken) {
  WaitingAnswers waiting;
  int n_tries = 0;
  const WaitingAnswers::Send full = [&](const Peer&, const Frames&) {
    ++n_tries;
    return SendResult::kBusy;
  };
  EXPECT_EQ(waiting.due(), TimePoint::max());
  for (const char* name : {"x", "y"}) ASSERT_TRUE(waiting.keep(client(name), {"a"}, kStart));
  for (TimePoint now = kStart; now < kStart + seconds(1); now += milliseconds(1)) {
    EXPECT_GE(waiting.due(), now);
    waiting.send_again(full, now);
  }
  EXPECT_GE(n_tries, 2 * 30);
  EXPECT_LE(n_tries, 2 * 40) << "31 ms of short pauses, then one in 32 ms";
  Wire wire{.room = 1, .only = "y"};
  ASSERT_TRUE(waiting.keep(client("y"), {"b"}, kStart + seconds(1)));
  waiting.send_again(wire.send(), kStart + seconds(2));
  EXPECT_EQ(wire.taken.size(), 1u);
  EXPECT_EQ(waiting.due(), kStart + seconds(2) + WaitingAnswers::kFirstPause)
      << "there may be more room";
}

TEST(WaitingAnswers, AreBoundedInBytesForEachClient) {
  WaitingAnswers waiting({.bytes_of_one = 10'000});
  const Frames piece{std::string(1000, 'x')};
  int n = 0;
  while (waiting.keep(client("x"), piece, kStart)) ++n;
  EXPECT_EQ(n, 8);  // with what keeping one costs
  EXPECT_TRUE(waiting.keep(client("y"), piece, kStart)) << "another has its own";
  EXPECT_FALSE(waiting.keep(client("z"), {std::string(20'000, 'x')}, kStart));
  EXPECT_FALSE(waiting.waits(client("z")));
}

TEST(WaitingAnswers, OfAClientThatTakesNoneAreLostAfterAWhileAndReported) {
  WaitingAnswers waiting({.patience = seconds(10)});
  Wire wire;
  for (const char* text : {"a", "b"}) ASSERT_TRUE(waiting.keep(client("x"), {text}, kStart));
  waiting.send_again(wire.send(), kStart + seconds(9));
  EXPECT_FALSE(waiting.lost());
  waiting.send_again(wire.send(), kStart + seconds(10));
  for (const char* text : {"a", "b"}) {
    const auto lost = waiting.lost();
    ASSERT_TRUE(lost);
    EXPECT_EQ(lost->kind, DeliveryKind::kDropped);
    EXPECT_EQ(lost->peer, client("x"));
    EXPECT_EQ(lost->frames, Frames{text});
  }
  EXPECT_FALSE(waiting.lost());
  EXPECT_TRUE(waiting.empty());
}

TEST(WaitingAnswers, OfAClientThatTakesOneNowAndThenAreKept) {
  WaitingAnswers waiting({.patience = seconds(10)});
  Wire wire;
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(waiting.keep(client("x"), {"a"}, kStart));
  for (int i = 1; i < 10; ++i) {
    wire.room = 1;
    waiting.send_again(wire.send(), kStart + i * seconds(9));
  }
  EXPECT_FALSE(waiting.lost());
  EXPECT_EQ(wire.taken.size(), 9u);
}

TEST(WaitingAnswers, OfAllTogetherAreBoundedAndWhoHoldsMostLosesThem) {
  WaitingAnswers waiting({.bytes_of_one = 10'000, .bytes_of_all = 12'000});
  const Frames piece{std::string(1000, 'x')};
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(waiting.keep(client("large"), piece, kStart));
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(waiting.keep(client("small"), piece, kStart));
  EXPECT_FALSE(waiting.waits(client("large")));
  EXPECT_TRUE(waiting.waits(client("small")));
  int n = 0;
  while (waiting.lost()) ++n;
  EXPECT_EQ(n, 8);
  EXPECT_LE(waiting.n_bytes(), 12'000u);
}

TEST(WaitingAnswers, OfAClientThatIsGoneGoWithOneWord) {
  WaitingAnswers waiting;
  Wire wire{.otherwise = SendResult::kUnknown};
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(waiting.keep(client("x"), {"a"}, kStart));
  waiting.send_again(wire.send(), waiting.due());
  const auto lost = waiting.lost();
  ASSERT_TRUE(lost);
  EXPECT_EQ(lost->kind, DeliveryKind::kUndelivered);
  EXPECT_FALSE(waiting.lost());
  EXPECT_TRUE(waiting.empty());
  EXPECT_EQ(waiting.n_bytes(), 0u);
}

TEST(WaitingAnswers, OfASocketThatWasClosedAreForgotten) {
  WaitingAnswers waiting;
  ASSERT_TRUE(waiting.keep(client("x"), {"a"}, kStart));
  waiting.forget(2);
  EXPECT_TRUE(waiting.waits(client("x")));
  waiting.forget(1);
  EXPECT_TRUE(waiting.empty());
  EXPECT_EQ(waiting.n_bytes(), 0u);
}

}  // namespace
}  // namespace foretoken
