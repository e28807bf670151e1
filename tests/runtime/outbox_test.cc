#include "common/runtime/outbox.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace foretoken {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const Peer kPeer{.socket = 1, .routing = {}};

// A bus whose connection has room for so many; the others come back with the next report().
class FullBus final : public Bus {
 public:
  TimePoint now() const override { return clock.now(); }
  SocketId bind(const std::string&, Door) override { return 1; }
  SocketId connect(const std::string&) override { return 1; }
  void close(SocketId) override {}
  std::string endpoint(SocketId) const override { return {}; }
  SendResult send(const Peer&, Frames frames) override {
    ++n_sends;
    if (room > 0) {
      --room;
      taken.push_back(std::stoi(frames.at(0)));
    } else {
      refused.push_back(std::move(frames));
    }
    return SendResult::kSent;
  }
  std::optional<Delivery> receive(TimePoint) override { return std::nullopt; }

  ManualClock clock;
  std::size_t room = 0;
  int n_sends = 0;
  std::vector<int> taken;
  std::vector<Frames> refused;
};

class OutboxTest : public testing::Test {
 protected:
  OutboxTest() { bus.clock.set(TimePoint{} + seconds(100)); }
  void send(int what) { ASSERT_TRUE(outbox.send(bus, kPeer, {std::to_string(what)})); }
  void report() {
    for (Frames& frames : std::exchange(bus.refused, {}))
      ASSERT_TRUE(outbox.came_back(std::move(frames), bus.now()));
  }
  // As a service does: reports as they come, and a flush in each turn.
  void run(Duration time) {
    for (const TimePoint end = bus.now() + time; bus.now() < end;
         bus.clock.advance(milliseconds(1))) {
      report();
      outbox.flush(bus, kPeer);
    }
    report();
  }

  FullBus bus;
  Outbox outbox;
};

TEST_F(OutboxTest, AFullConnectionIsTriedMoreAndMoreRarelyWithOneMessage) {
  for (int i = 0; i < 500; ++i) send(i);
  run(seconds(1));
  bus.n_sends = 0;
  run(seconds(10));
  EXPECT_GE(bus.n_sends, 10'000 / 70);
  EXPECT_LE(bus.n_sends, 10'000 / 60) << "one in 64 ms, and not all 500 in 2 ms";
  EXPECT_EQ(500u, outbox.size());
}

TEST_F(OutboxTest, WhatWaitedLeavesInOrderSoonAfterThereIsRoom) {
  for (int i = 0; i < 500; ++i) send(i);
  run(seconds(1));
  for (int i = 500; i < 600; ++i) send(i);
  bus.room = 100'000;
  run(milliseconds(64 + 40));
  EXPECT_EQ(0u, outbox.size());
  for (int i = 600; i < 700; ++i) send(i);
  run(milliseconds(10));
  ASSERT_EQ(700u, bus.taken.size());
  for (int i = 0; i < 700; ++i) EXPECT_EQ(i, bus.taken[static_cast<std::size_t>(i)]);
}

TEST_F(OutboxTest, AConnectionThatTakesAFewNowAndThenIsNotLeftAlone) {
  for (int i = 0; i < 200; ++i) send(i);
  report();
  for (int i = 0; i < 200 && outbox.size() > 0; ++i) {
    bus.room = 4;
    run(milliseconds(20));
  }
  EXPECT_EQ(0u, outbox.size());
  ASSERT_EQ(200u, bus.taken.size());
  for (int i = 0; i < 200; ++i) EXPECT_EQ(i, bus.taken[static_cast<std::size_t>(i)]);
}

}  // namespace
}  // namespace foretoken
