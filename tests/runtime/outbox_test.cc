#include "common/runtime/outbox.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace foretoken {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr TimePoint kBegin{std::chrono::hours(1)};
constexpr SocketId kClients = 1;

Peer client(const std::string& name) { return {.socket = kClients, .routing = name}; }

constexpr Posting kPatient{.patience = kAsLongAsItTakes};

// A socket for clients whose connections take as many as the test says.
class OutboxTest : public testing::Test {
 protected:
  OutboxTest() { outbox.add(kClients, Door::kClient); }
  void send(const std::string& name, const std::string& text, const Posting& posting = kPatient) {
    outbox.send(client(name), {text}, posting, now);
  }
  void run(Duration time) {
    for (const TimePoint end = now + time; now < end; now += milliseconds(1))
      outbox.send_again(now);
  }
  std::vector<Delivery> lost() {
    std::vector<Delivery> all;
    while (auto report = outbox.lost()) all.push_back(*report);
    return all;
  }

  TimePoint now = kBegin;
  std::map<std::string, int> room;  // of a connection; none = 0
  SendResult otherwise = SendResult::kBusy;
  int n_tries = 0;
  std::vector<std::string> taken;
  Outbox outbox{[this](const Peer& to, const Frames& frames) {
                  ++n_tries;
                  if (room[to.routing] == 0) return otherwise;
                  --room[to.routing];
                  taken.push_back(frames.front());
                  return SendResult::kSent;
                },
                {WaitingLimits{10'000, 30'000}, WaitingLimits{10'000, 12'000}, WaitingLimits{}}};
};

TEST_F(OutboxTest, WhatIsTakenAtOnceDoesNotWait) {
  room["x"] = 1;
  send("x", "a");
  EXPECT_EQ(taken, std::vector<std::string>{"a"});
  EXPECT_TRUE(outbox.empty());
  EXPECT_EQ(outbox.due(), TimePoint::max());
}

TEST_F(OutboxTest, WhatWaitsLeavesInOrderAsThereIsRoom) {
  for (const char* text : {"a", "b", "c"}) send("x", text);
  EXPECT_EQ(outbox.n_waiting(kClients), 3u);
  room["x"] = 2;
  run(milliseconds(10));
  EXPECT_EQ(taken, (std::vector<std::string>{"a", "b"}));
  send("x", "d");
  room["x"] = 5;
  run(milliseconds(40));
  send("x", "e");
  EXPECT_EQ(taken, (std::vector<std::string>{"a", "b", "c", "d", "e"}));
  EXPECT_TRUE(outbox.empty());
  EXPECT_EQ(outbox.n_bytes(Door::kClient), 0u);
  EXPECT_TRUE(lost().empty());
}

// A thousand clients that do not read are no work of every millisecond.
TEST_F(OutboxTest, AFullConnectionIsTriedMoreAndMoreRarelyWithOneMessage) {
  for (const char* name : {"x", "y"})
    for (int i = 0; i < 10; ++i) send(name, "a");
  n_tries = 0;
  run(seconds(1));
  EXPECT_GE(n_tries, 2 * 30);
  EXPECT_LE(n_tries, 2 * 40) << "31 ms of short pauses, then one in 32 ms";
  now = outbox.due();
  room = {{"x", 1}, {"y", 1}};
  outbox.send_again(now);
  now = outbox.due();
  outbox.send_again(now);
  EXPECT_EQ(taken.size(), 2u);
  EXPECT_LE(outbox.due(), now + 2 * Outbox::kFirstPause) << "there may be more room";
}

TEST_F(OutboxTest, WhatHasNoPatienceIsTriedOnceBeforeAllThatWaits) {
  send("x", "late", {.ticket = {1, 2}});
  const auto reports = lost();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].kind, DeliveryKind::kDropped);
  EXPECT_EQ(reports[0].peer, client("x"));
  EXPECT_EQ(reports[0].ticket, (Ticket{1, 2}));
  EXPECT_TRUE(outbox.empty());
  send("x", "waits");
  room["x"] = 1;
  send("x", "overtakes", {});
  EXPECT_EQ(taken, std::vector<std::string>{"overtakes"});
}

TEST_F(OutboxTest, IsBoundedInBytesForEachPeerAndKeepsAReserveForWhatEnds) {
  const std::string piece(1000, 'x');
  for (int i = 0; i < 10; ++i) send("x", piece, {.ticket = {1, 1}, .patience = seconds(9)});
  EXPECT_EQ(outbox.n_waiting(kClients), 8u) << "with what keeping one costs";
  EXPECT_EQ(lost().size(), 2u);
  send("x", piece, {.patience = seconds(9), .room = Room::kReserved});
  EXPECT_EQ(outbox.n_waiting(kClients), 9u);
  send("y", piece);
  EXPECT_EQ(outbox.n_waiting(kClients), 10u) << "another has its own";
  send("z", std::string(20'001, 'x'), {.patience = seconds(9), .room = Room::kReserved});
  EXPECT_EQ(lost().size(), 1u);
}

// When this process did not run for a while, pieces of that time come at once.
TEST_F(OutboxTest, APeerThatIsTakingMayBeBehindByMore) {
  const std::string piece(872, 'x');  // 1,000 bytes with what keeping one costs
  Outbox::Limits limits{WaitingLimits{}, WaitingLimits{4'000, 64'000, 16'000}, WaitingLimits{}};
  int n_room = 0;
  Outbox box{[&](const Peer&, const Frames&) {
               return n_room > 0 ? (--n_room, SendResult::kSent) : SendResult::kBusy;
             },
             limits};
  box.add(kClients, Door::kClient);
  std::uint64_t n_sent = 0;
  const auto fill = [&](std::size_t n) {
    for (std::size_t i = 0; i < n; ++i)
      box.send(client("x"), {piece}, {.ticket = {1, ++n_sent}, .patience = seconds(9)}, now);
    return box.n_waiting(kClients);
  };
  EXPECT_EQ(fill(20), 4u) << "it has taken none";
  n_room = 1;
  box.send_again(now += Outbox::kFirstPause);
  EXPECT_EQ(fill(20), 16u) << "it takes";
  n_room = 8;
  box.send_again(now += Outbox::kLongestPause);
  for (int i = 0; i < 9; ++i) box.send_again(now += milliseconds(100));
  EXPECT_EQ(fill(1), 9u) << "a busy machine held it up";
  for (int i = 0; i < 2; ++i) box.send_again(now += milliseconds(100));
  EXPECT_EQ(fill(1), 9u) << "it has stopped taking";
  n_room = 6;
  box.send_again(now += Outbox::kLongestPause);
  EXPECT_EQ(box.n_waiting(kClients), 3u);
  EXPECT_EQ(fill(20), 16u);
}

TEST_F(OutboxTest, AllTogetherAreBoundedAndThePeerWithMostLosesThemButForWhatEnds) {
  const std::string piece(1000, 'x');
  for (std::uint64_t i = 0; i < 8; ++i)
    send("large", piece, {.ticket = {1, i + 1}, .patience = seconds(9)});
  send("large", "end", {.patience = seconds(9), .room = Room::kReserved});
  for (int i = 0; i < 4; ++i) send("small", piece);
  EXPECT_EQ(lost().size(), 8u);
  EXPECT_LE(outbox.n_bytes(Door::kClient), 12'000u);
  room = {{"large", 9}, {"small", 9}};
  run(milliseconds(40));
  EXPECT_EQ(taken.size(), 5u);
  EXPECT_NE(std::find(taken.begin(), taken.end(), "end"), taken.end());
}

// By what waits now, however it came to that: taken, lost, or kept in another order.
TEST_F(OutboxTest, RoomIsMadeByThePeerForWhichMostWaitsNow) {
  const auto piece = [](std::uint64_t of) {
    return Posting{.ticket = {1, of}, .patience = seconds(9)};
  };
  const std::string text(872, 'x');  // 1,000 bytes with what keeping one costs
  for (const auto& [name, n] : std::map<std::string, int>{{"a", 5}, {"b", 4}, {"c", 3}})
    for (int i = 0; i < n; ++i) send(name, text, piece(static_cast<std::uint64_t>(name[0])));
  room["a"] = 3;  // 2 are left, and b has most
  run(milliseconds(2));
  for (int i = 0; i < 3; ++i) send("d", text, piece('d'));
  EXPECT_TRUE(lost().empty());
  send("c", text, piece('c'));  // 13: b and c have four each, and b goes
  auto reports = lost();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].peer.routing, "b");
  EXPECT_EQ(outbox.n_bytes(Door::kClient), 9'000u);
  for (int i = 0; i < 4; ++i) send("d", text, piece('d'));  // 13: seven of them
  reports = lost();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].peer.routing, "d");
  EXPECT_EQ(outbox.n_bytes(Door::kClient), 6'000u);
}

TEST_F(OutboxTest, WhatAPeerTakesNoneOfIsLostWhenItsPatienceIsOver) {
  send("x", "a", {.ticket = {1, 1}, .patience = seconds(10)});
  send("x", "b", {.ticket = {1, 2}, .patience = seconds(30)});
  run(milliseconds(9'900));
  EXPECT_TRUE(lost().empty());
  run(milliseconds(200));
  auto reports = lost();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].ticket, (Ticket{1, 1}));
  run(seconds(19));
  EXPECT_TRUE(lost().empty());
  run(seconds(2));
  reports = lost();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].ticket, (Ticket{1, 2}));
  EXPECT_TRUE(outbox.empty());
  EXPECT_EQ(outbox.n_bytes(Door::kClient), 0u);
}

TEST_F(OutboxTest, APeerThatTakesOneNowAndThenLosesNone) {
  for (int i = 0; i < 10; ++i) send("x", "a", {.patience = seconds(10)});
  for (int i = 0; i < 9; ++i) {
    run(seconds(9));
    room["x"] = 1;
    run(milliseconds(40));
  }
  EXPECT_TRUE(lost().empty());
  EXPECT_EQ(taken.size(), 9u);
}

// Of a process that was stopped: its peers could take nothing, and may have room in a moment.
TEST_F(OutboxTest, APauseOfTheSenderIsNotTakenFromAPeersPatience) {
  send("x", "a", {.patience = seconds(10)});
  run(seconds(1));
  now += std::chrono::minutes(3);
  run(seconds(8));
  EXPECT_TRUE(lost().empty());
  run(seconds(2));
  EXPECT_EQ(lost().size(), 1u);
}

// ---- series

TEST_F(OutboxTest, BehindALostMessageItsSeriesIsLostInOneReport) {
  const Posting piece{.ticket = {1, 1}, .patience = seconds(10), .part = Part::kNext};
  Posting end = piece;
  end.patience = seconds(30);
  send("x", "piece", piece);
  send("x", "end", end);
  send("x", "other", {.ticket = {1, 2}, .patience = seconds(30), .part = Part::kNext});
  run(seconds(11));
  EXPECT_EQ(lost().size(), 1u);
  send("x", "of the same series", end);
  room["x"] = 9;
  send("y", "of another peer", end);
  run(milliseconds(40));
  EXPECT_EQ(taken, std::vector<std::string>{"other"});
  send("x", "not even now", piece);
  EXPECT_EQ(taken.size(), 1u);
  EXPECT_TRUE(lost().empty());
  Posting first = piece;
  first.part = Part::kFirst;
  send("x", "first", first);
  send("x", "next", piece);
  EXPECT_EQ(taken, (std::vector<std::string>{"other", "first", "next"}));
}

TEST_F(OutboxTest, ASeriesThatBeginsAnewLosesNothingToTheFormer) {
  const Ticket ticket{1, 1};
  send("x", "old", {.ticket = ticket, .patience = seconds(5)});
  run(seconds(1));
  send("x", "new", {.ticket = ticket, .patience = seconds(30)});
  send("x", "next", {.ticket = ticket, .patience = seconds(30), .part = Part::kNext});
  run(seconds(6));
  EXPECT_EQ(outbox.n_waiting(kClients), 2u);
  EXPECT_TRUE(lost().empty()) << "what was lost is in the new series";
  room["x"] = 9;
  run(milliseconds(40));
  EXPECT_EQ(taken, (std::vector<std::string>{"new", "next"}));
}

TEST_F(OutboxTest, ASeriesIsReportedOnceThoughMoreOfItIsLostLater) {
  const Posting next{.ticket = {1, 1}, .patience = seconds(5), .part = Part::kNext};
  send("x", "waits", {.ticket = {1, 1}, .patience = seconds(5)});
  send("x", std::string(10'000, 'a'), next);
  EXPECT_EQ(lost().size(), 1u);
  run(seconds(6));
  EXPECT_TRUE(outbox.empty());
  EXPECT_TRUE(lost().empty());
}

TEST_F(OutboxTest, WhatWasLostOnItsWayHereIsAHoleToo) {
  outbox.lose(client("x"), {.ticket = {1, 1}});
  EXPECT_EQ(lost().size(), 1u);
  room["x"] = 9;
  send("x", "next", {.ticket = {1, 1}, .part = Part::kNext});
  EXPECT_TRUE(taken.empty());
  EXPECT_TRUE(lost().empty());
}

// ---- peers and sockets that go

TEST_F(OutboxTest, APeerThatIsGoneTakesAllWithItInOneReport) {
  for (int i = 0; i < 3; ++i) send("x", "a");
  otherwise = SendResult::kUnknown;
  run(milliseconds(5));
  const auto reports = lost();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].kind, DeliveryKind::kUndelivered);
  EXPECT_EQ(reports[0].peer, client("x"));
  EXPECT_TRUE(outbox.empty());
  EXPECT_EQ(outbox.n_bytes(Door::kClient), 0u);
}

TEST_F(OutboxTest, APeerOrASocketThatIsGivenUpIsForgottenWithoutAReport) {
  send("x", "a");
  send("y", "b");
  outbox.send({.socket = 2, .routing = "x"}, {"c"}, kPatient, now);
  outbox.forget(client("x"));
  EXPECT_EQ(outbox.n_waiting(kClients), 1u);
  outbox.remove(kClients);
  EXPECT_EQ(outbox.n_waiting(kClients), 0u);
  EXPECT_EQ(outbox.n_waiting(2), 1u);
  EXPECT_EQ(outbox.n_bytes(Door::kClient), 0u);
  EXPECT_TRUE(lost().empty());
}

// ---- what holds for any history

// Peers that take now and then, and go. What is sent is a single message under a ticket of its own,
// or the next of a series, which begins anew at times and always when its loss is known.
class History {
 public:
  explicit History(std::uint64_t seed) : random_(seed) { outbox_.add(kClients, Door::kClient); }

  void run() {
    for (int i = 0; i < 400; ++i) {
      const std::string name(1, static_cast<char>('a' + dice(3)));
      const std::uint64_t what = dice(20);
      if (what < 3)
        room_[name] += dice(6);
      else if (what < 6)
        outbox_.send_again(now_ += milliseconds(dice(2'000)));
      else if (what == 6)
        leave(name);
      else
        send(name);
      if (dice(3) == 0) hear();  // or later: what is sent meanwhile is lost as well
      ASSERT_LE(outbox_.n_bytes(Door::kClient), 7'000u);
    }
    for (const char* name : {"a", "b", "c"}) room_[name] = 1'000'000;
    for (int i = 0; i < 100; ++i) outbox_.send_again(now_ += milliseconds(1));
    hear();
    EXPECT_TRUE(outbox_.empty());
    EXPECT_EQ(outbox_.n_bytes(Door::kClient), 0u);
    check();
  }

  int n_whole = 0, n_broken = 0, n_single_lost = 0;

 private:
  struct Sent {
    std::string name;
    bool waits = false;
    int n_taken = 0, n_dropped = 0;
    bool went_with_peer = false;
  };
  struct Run {
    std::vector<std::uint64_t> numbers;
    bool is_reported = false;
  };
  using Series = std::pair<std::string, std::uint64_t>;

  std::uint64_t dice(std::uint64_t n) { return random_() % n; }

  SendResult take(const Peer& to, const Frames& frames) {
    if (is_gone_ == to.routing) return SendResult::kUnknown;
    if (room_[to.routing] == 0) return SendResult::kBusy;
    --room_[to.routing];
    const std::uint64_t number = std::stoull(frames.front());
    ++sent_.at(number).n_taken;
    taken_[to.routing].push_back(number);
    return SendResult::kSent;
  }

  void send(const std::string& name, std::uint64_t patience_ms, Posting posting) {
    posting.patience = milliseconds(patience_ms);
    posting.room = dice(10) == 0 ? Room::kReserved : Room::kShared;
    outbox_.send(client(name), {std::to_string(n_sent_), std::string(dice(400), 'x')}, posting,
                 now_);
  }

  void send(const std::string& name) {
    const std::uint64_t series = dice(4);
    Sent& sent = sent_[++n_sent_];
    sent.name = name;
    if (series == 0) {
      const std::uint64_t patience_ms = dice(2) * dice(9'000);
      sent.waits = patience_ms > 0;
      return send(name, patience_ms, {.ticket = {1, n_sent_}});
    }
    sent.waits = true;  // one without patience would overtake its own series
    std::vector<Run>& runs = runs_[{name, series}];
    const bool begins = runs.empty() || runs.back().is_reported || dice(20) == 0;
    if (begins) runs.emplace_back();
    runs.back().numbers.push_back(n_sent_);
    send(name, 1 + dice(9'000),
         {.ticket = {2, series}, .part = begins ? Part::kFirst : Part::kNext});
  }

  void leave(const std::string& name) {
    is_gone_ = name;
    sent_[++n_sent_].name = name;
    send(name, 0, {.ticket = {1, n_sent_}});  // and it is noticed
    is_gone_.clear();
  }

  void hear() {
    while (const auto report = outbox_.lost()) {
      const std::string& name = report->peer.routing;
      if (report->kind == DeliveryKind::kUndelivered) {
        for (auto& [number, sent] : sent_) sent.went_with_peer |= sent.name == name;
        for (auto& [series, runs] : runs_)
          if (series.first == name)
            for (Run& run : runs) run.is_reported = true;
      } else if (report->ticket.high == 1) {
        ++sent_.at(report->ticket.low).n_dropped;
      } else {
        for (Run& run : runs_.at({name, report->ticket.low})) run.is_reported = true;
      }
    }
  }

  void check() {
    for (const auto& [name, numbers] : taken_) {
      std::vector<std::uint64_t> in_order;
      for (const std::uint64_t number : numbers)
        if (sent_.at(number).waits) in_order.push_back(number);
      EXPECT_TRUE(std::is_sorted(in_order.begin(), in_order.end())) << "to " << name;
    }
    std::set<std::uint64_t> in_series;
    for (const auto& [series, runs] : runs_)
      for (const Run& run : runs) {
        std::size_t n = 0;
        while (n < run.numbers.size() && sent_.at(run.numbers[n]).n_taken == 1) ++n;
        (n == run.numbers.size() ? n_whole : n_broken) += 1;
        const bool is_last = &run == &runs.back();
        EXPECT_TRUE(n == run.numbers.size() || run.is_reported || !is_last)
            << "of " << series.first << series.second << " number " << run.numbers[n];
        for (; n < run.numbers.size(); ++n)
          EXPECT_EQ(sent_.at(run.numbers[n]).n_taken, 0) << "behind a hole: " << run.numbers[n];
        in_series.insert(run.numbers.begin(), run.numbers.end());
      }
    for (const auto& [number, sent] : sent_) {
      if (in_series.contains(number)) continue;
      n_single_lost += sent.n_dropped;
      EXPECT_LE(sent.n_taken + sent.n_dropped, 1) << number;
      EXPECT_GE(sent.n_taken + sent.n_dropped + (sent.went_with_peer ? 1 : 0), 1) << number;
    }
  }

  std::mt19937_64 random_;
  TimePoint now_ = kBegin;
  std::map<std::string, std::uint64_t> room_;
  std::string is_gone_;
  std::uint64_t n_sent_ = 0;
  std::map<std::uint64_t, Sent> sent_;
  std::map<Series, std::vector<Run>> runs_;
  std::map<std::string, std::vector<std::uint64_t>> taken_;
  Outbox outbox_{[this](const Peer& to, const Frames& frames) { return take(to, frames); },
                 {WaitingLimits{}, WaitingLimits{3'000, 7'000}, WaitingLimits{}}};
};

TEST(OutboxProperty, EachMessageIsTakenInOrderOrItsSenderLearnsThatItIsNot) {
  int n_whole = 0, n_broken = 0, n_single_lost = 0;
  for (std::uint64_t seed = 1; seed <= 500 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    History history(seed);
    history.run();
    n_whole += history.n_whole;
    n_broken += history.n_broken;
    n_single_lost += history.n_single_lost;
  }
  EXPECT_GT(n_whole, 500);
  EXPECT_GT(n_broken, 500);
  EXPECT_GT(n_single_lost, 500);
}

// The oldest of very many holes are forgotten: not one that was filled and is there again.
TEST_F(OutboxTest, AHoleIsAsOldAsItsLastLoss) {
  const Ticket ticket{1, 2};
  outbox.lose(client("x"), {.ticket = ticket});
  room["x"] = 1;
  send("x", "first", {.ticket = ticket});
  for (std::uint64_t i = 0; i < 4095; ++i) outbox.lose(client("y"), {.ticket = {3, i}});
  outbox.lose(client("x"), {.ticket = ticket});
  lost();
  room["x"] = 1;
  send("x", "behind a hole", {.ticket = ticket, .part = Part::kNext});
  EXPECT_EQ(taken, std::vector<std::string>{"first"});
}

}  // namespace
}  // namespace foretoken
