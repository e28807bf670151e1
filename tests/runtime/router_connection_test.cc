#include "common/runtime/router_connection.h"

#include <gtest/gtest.h>

#include <utility>
#include <variant>
#include <vector>

#include "common/base/log.h"
#include "tests/runtime/router_bus.h"

namespace foretoken {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::RouterBus;

class RouterConnectionTest : public testing::Test {
 protected:
  RouterConnectionTest() {
    configure_log(LogLevel::kError, LogFormat::kText, "test");
    bus.clock.set(TimePoint{} + seconds(100));
    connection.start(bus, "ipc://router");
  }
  void hear(const wire::Message& message) {
    wire::Speaker router(WorkerId{1}, Incarnation{1});
    const auto decoded = value_or_throw(wire::decode(wire::encode(router, {}, message)));
    connection.on_message(decoded.header, decoded.message);
  }
  // It arrives while the work thread computes. By when the pulses are to be called.
  TimePoint arrive(const wire::Message& message) {
    wire::Speaker router(WorkerId{1}, Incarnation{3});
    const Delivery delivery{.peer = {.socket = 1, .routing = {}},
                            .frames = wire::encode(router, {}, message)};
    TimePoint due = TimePoint::max();
    for (const Bus::Observer& observer : bus.observers)
      due =
          std::min(due, observer(delivery, bus.now(), [this](const Peer& to, const Frames& frames) {
                     return bus.send_directly(to, frames);
                   }));
    return due;
  }
  // A router that was started meanwhile answers each heartbeat of that time; the hellos it gets.
  int hellos_within(Duration time, bool refuses) {
    int n = 0;
    for (const TimePoint end = bus.now() + time; bus.now() < end;) {
      if (bus.beats_within(milliseconds(10)) > 0) arrive(wire::HeartbeatReply{.known = false});
      const int said = bus.n_sent<wire::Hello>();
      n += said;
      if (said > 0 && refuses)
        arrive(wire::HelloReply{.accepted = false, .message = "another life"});
    }
    return n;
  }
  void turn() {
    connection.turn(bus.now(), [] { return wire::Heartbeat{}; });
  }

  RouterBus bus;
  wire::Speaker speaker{WorkerId{2}, Incarnation{2}};
  RouterConnection connection{speaker, wire::Hello{.role = wire::Role::kTarget}, milliseconds(250)};
};

// Its connection is made while it is said. One that waited longer would hold up the next.
TEST_F(RouterConnectionTest, AFirstHelloWaitsForItsConnectionAndNotBehindItself) {
  turn();
  ASSERT_EQ(bus.n_sent<wire::Hello>(), 1);
  const TimePoint said = bus.now();
  EXPECT_GT(bus.postings.back().patience, Duration{});
  EXPECT_LT(said + bus.postings.back().patience, connection.due());

  hear(wire::HelloReply{.accepted = true});
  hear(wire::HeartbeatReply{.known = false});
  bus.clock.advance(seconds(1));
  turn();
  ASSERT_EQ(bus.n_sent<wire::Hello>(), 2);
  EXPECT_EQ(bus.postings.back().patience, Duration{});
}

TEST_F(RouterConnectionTest, HeartbeatsWaitForARouter) {
  turn();
  EXPECT_EQ(bus.beats_within(seconds(5)), 0);
  hear(wire::HelloReply{.accepted = true});
  EXPECT_GE(bus.beats_within(seconds(5)), 15);
}

// The router that takes a worker back counts its heartbeats from that moment, and the worker may be
// in the middle of a long turn by then.
TEST_F(RouterConnectionTest, HeartbeatsGoOnFromTheSecondHelloHoweverLateItsAnswerIsRead) {
  turn();
  hear(wire::HelloReply{.accepted = true});
  hear(wire::HeartbeatReply{.known = false});
  EXPECT_EQ(bus.beats_within(seconds(5)), 0) << "the router does not know this worker";
  turn();
  EXPECT_GE(bus.beats_within(seconds(5)), 15) << "it was greeted, and its answer is not read yet";
  hear(wire::HelloReply{.accepted = false, .message = "another model"});
  turn();
  EXPECT_EQ(bus.beats_within(seconds(20)), 0) << "it refused";
}

TEST_F(RouterConnectionTest, ALongTurnGreetsARouterThatWasStartedMeanwhile) {
  turn();
  hear(wire::HelloReply{.accepted = true});
  bus.clock.advance(seconds(1));
  bus.progress().set_floor(seconds(30));
  bus.progress().begin(bus.now());
  arrive(wire::HeartbeatReply{.known = false});
  EXPECT_EQ(bus.n_sent<wire::Hello>(), 1)
      << "the one of its start: the work thread comes to it at once";
  EXPECT_EQ(hellos_within(milliseconds(300), false), 1) << "with the answer to the first heartbeat";
  EXPECT_GE(hellos_within(seconds(4), false), 4) << "until one arrives";
  bus.sent.clear();
  arrive(wire::HelloReply{.accepted = true});
  arrive(wire::HeartbeatReply{.known = true});
  EXPECT_EQ(bus.n_sent<wire::Hello>(), 0) << "it is known";
  bus.clock.advance(seconds(30));
  EXPECT_EQ(hellos_within(seconds(4), false), 0) << "it is stuck, and of no use to anybody";
}

// A heartbeat leaves just before a long step, and the answer comes just after the step has begun.
// The next heartbeat may be a minute away.
TEST_F(RouterConnectionTest, ALongTurnGreetsARouterWhoseAnswerCameAtItsBeginning) {
  turn();
  hear(wire::HelloReply{.accepted = true});
  bus.clock.advance(seconds(1));
  bus.progress().set_floor(seconds(30));
  bus.progress().begin(bus.now());
  turn();
  EXPECT_EQ(bus.n_sent<wire::Heartbeat>(), 1);
  const TimePoint begun = bus.now();
  bus.clock.advance(milliseconds(1));
  EXPECT_EQ(arrive(wire::HeartbeatReply{.known = false}), begun + milliseconds(100));
  EXPECT_EQ(hellos_within(milliseconds(95), false), 0) << "the turn may be a short one";
  EXPECT_EQ(hellos_within(milliseconds(20), false), 1);
  EXPECT_EQ(bus.n_sent<wire::Heartbeat>(), 0) << "it waits for none";
  bus.progress().begin(bus.now());  // the next turn
  arrive(wire::HeartbeatReply{.known = false});
  bus.progress().wait(bus.now());
  EXPECT_EQ(hellos_within(seconds(1), false), 0) << "the work thread says it itself";
}

TEST_F(RouterConnectionTest, ARefusedServiceInALongTurnAsksEveryFiveSeconds) {
  turn();
  hear(wire::HelloReply{.accepted = true});
  bus.progress().set_floor(seconds(60));
  bus.progress().begin(bus.now());
  bus.clock.advance(seconds(2));
  EXPECT_EQ(hellos_within(milliseconds(4900), true), 1);
  EXPECT_EQ(hellos_within(seconds(20), true), 4);
}

}  // namespace
}  // namespace foretoken
