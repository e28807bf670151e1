// What every worker owes the router, with a worker that does nothing else: on a manual clock and
// without sockets.
#include "common/runtime/worker_service.h"

#include <gmock/gmock.h>

#include <functional>
#include <string>
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
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr SocketId kOther = 7;

class Apprentice final : public WorkerService {
 public:
  Apprentice(wire::Speaker& speaker, Metrics& metrics)
      : WorkerService({"ipc://router", milliseconds(250), milliseconds(400)},
                      {.role = wire::Role::kTarget,
                       .name = "target-0",
                       .fingerprints = {.model = 0xab, .numerics = 0xcd},
                       .model_name = "m",
                       .vocab_size = 49,
                       .max_model_len = 2048},
                      speaker,
                      metrics) {}
  std::string status() const override { return "busy"; }
  void answer() { router().send({1, 2}, wire::Opened{}); }

  std::vector<std::string> said;  // what it was called for, in order
  bool is_busy = false;
  std::function<void()> at_work = [] {};
  std::function<void()> at_leave = [] {};
  TimePoint next = TimePoint::max();

 private:
  void open(Bus&, wire::Hello& hello) override { hello.endpoint = "ipc://own"; }
  bool on_router_message(const wire::Header& header, wire::Message& message) override {
    if (!std::holds_alternative<wire::Open>(message)) return false;
    said.push_back("open");
    router().send(header.request, wire::Opened{});
    return true;
  }
  void on_new_router() override { said.push_back("new router"); }
  void on_peer_message(const Delivery&, const wire::Header&, wire::Message&) override {
    said.push_back("peer");
  }
  void on_peer_dropped(const Peer&, Ticket) override { said.push_back("peer dropped"); }
  TimePoint work(TimePoint) override {
    at_work();
    return next;
  }
  bool has_to_stay() const override { return is_busy && router().is_needed(); }
  void leave() override {
    at_leave();
    said.push_back("leave");
  }
  wire::Heartbeat own_load() const override { return {.active = 3, .dropped_total = 10}; }
  void list_metrics(Metrics& metrics) override { metrics.gauge("tokenizer_streams", 5); }
};

class WorkerServiceTest : public testing::Test {
 protected:
  WorkerServiceTest() {
    configure_log(LogLevel::kError, LogFormat::kText, "test");
    bus.clock.set(TimePoint{} + seconds(100));
    worker.start(bus);
    worker.on_turn(bus.now());
  }
  void hear(const wire::Message& message, std::uint64_t life = 1, SocketId socket = 1) {
    wire::Speaker them(WorkerId{1}, Incarnation{life});
    worker.on_message(
        {.peer = {.socket = socket, .routing = {}}, .frames = wire::encode(them, {4, 4}, message)});
    worker.on_turn(bus.now());
  }
  void register_it() {
    hear(wire::HelloReply{.accepted = true});
    bus.sent.clear();
  }
  // What it sends within this time, by turns of 10 ms.
  template <class M>
  int n_within(Duration time) {
    bus.sent.clear();
    for (const TimePoint end = bus.now() + time; bus.now() < end;) {
      bus.clock.advance(milliseconds(10));
      worker.on_turn(bus.now());
    }
    return bus.n_sent<M>();
  }
  wire::Heartbeat next_beat() {
    EXPECT_GE(n_within<wire::Heartbeat>(milliseconds(300)), 1);
    return last_beat();
  }
  wire::Heartbeat last_beat() {
    wire::Heartbeat last;
    for (const wire::Message& message : bus.sent)
      if (const auto* beat = std::get_if<wire::Heartbeat>(&message)) last = *beat;
    return last;
  }

  RouterBus bus;
  wire::Speaker speaker{WorkerId{2}, Incarnation{2}};
  Metrics metrics;
  Apprentice worker{speaker, metrics};
};

// ---- registration

TEST_F(WorkerServiceTest, SaysHelloAsItsKindCompletesItUntilItIsAnswered) {
  ASSERT_EQ(bus.sent.size(), 1u);
  EXPECT_EQ(std::get<wire::Hello>(bus.sent[0]).endpoint, "ipc://own");
  EXPECT_GE(n_within<wire::Hello>(seconds(3)), 9);
  EXPECT_EQ(bus.n_sent<wire::Heartbeat>(), 0) << "no router has accepted it";
  register_it();
  EXPECT_EQ(n_within<wire::Hello>(seconds(3)), 0);
  EXPECT_GE(bus.n_sent<wire::Heartbeat>(), 11);
}

TEST_F(WorkerServiceTest, RegistersAgainWithARouterThatDoesNotKnowIt) {
  register_it();
  hear(wire::HeartbeatReply{.known = false});
  EXPECT_EQ(bus.n_sent<wire::Hello>(), 1);
  hear(wire::HelloReply{.accepted = true});
  EXPECT_EQ(n_within<wire::Hello>(seconds(3)), 0);
  EXPECT_TRUE(worker.said.empty()) << "the same router";
  hear(wire::HelloReply{.accepted = true}, 2);
  EXPECT_THAT(worker.said, ElementsAre("new router"));
}

TEST_F(WorkerServiceTest, ARefusedOneAsksSeldomAndSendsNoHeartbeats) {
  register_it();
  hear(wire::HeartbeatReply{.known = false});
  hear(wire::HelloReply{.accepted = false, .message = "another model"});
  EXPECT_EQ(n_within<wire::Hello>(seconds(21)), 4);
  EXPECT_EQ(bus.n_sent<wire::Heartbeat>(), 0);
}

// ---- messages and load

TEST_F(WorkerServiceTest, EachMessageGoesWhereItBelongs) {
  register_it();
  hear(wire::Open{});
  EXPECT_EQ(bus.n_sent<wire::Opened>(), 1);
  hear(wire::Open{}, 9, kOther);
  worker.on_dropped({.socket = kOther, .routing = {}}, Ticket{});
  EXPECT_THAT(worker.said, ElementsAre("open", "peer", "peer dropped"));
}

TEST_F(WorkerServiceTest, AHeartbeatHasItsKindsLoadAndWhatWasDropped) {
  register_it();
  EXPECT_EQ(next_beat().active, 3u);
  EXPECT_EQ(last_beat().dropped_total, 10u);
  EXPECT_FALSE(last_beat().draining);
  EXPECT_EQ(last_beat().state, "ready");
  worker.on_message({.peer = {.socket = 1, .routing = {}}, .frames = {"garbage"}});
  hear(wire::Text{});  // well-formed, and not for it
  worker.on_dropped({.socket = 1, .routing = {}}, Ticket{});
  EXPECT_EQ(next_beat().dropped_total, 13u);
}

TEST_F(WorkerServiceTest, AnswersWithItsListingAndTheFramesDropped) {
  register_it();
  hear(wire::Text{});
  hear(wire::MetricsRequest{});
  ASSERT_EQ(bus.n_sent<wire::MetricsReply>(), 1);
  const std::string text = std::get<wire::MetricsReply>(bus.sent.back()).text;
  EXPECT_THAT(text, HasSubstr("# HELP foretoken_tokenizer_streams Streams being decoded.\n"));
  EXPECT_THAT(text, HasSubstr("foretoken_tokenizer_streams{model_name=\"m\"} 5\n"));
  EXPECT_THAT(text, HasSubstr("foretoken_frames_dropped_total{model_name=\"m\"} 11\n"));
  EXPECT_THAT(text,
              HasSubstr(R"(foretoken_model_info{model_name="m",fingerprint="00000000000000ab",)"
                        R"(max_model_len="2048",numerics="00000000000000cd",vocab_size="49"} 1)"
                        "\n"));
}

TEST_F(WorkerServiceTest, WhatBelongsToARequestWaitsForAFullSocketAndGreetingsDoNot) {
  register_it();
  bus.sent.clear();
  bus.postings.clear();
  worker.at_work = [&] { worker.answer(); };
  bus.clock.advance(seconds(1));
  worker.on_turn(bus.now());
  worker.at_work = [] {};
  ASSERT_EQ(bus.sent.size(), 2u);
  EXPECT_TRUE(std::holds_alternative<wire::Heartbeat>(bus.sent[0]));
  EXPECT_EQ(bus.postings[0].patience, Duration{});
  EXPECT_TRUE(std::holds_alternative<wire::Opened>(bus.sent[1]));
  EXPECT_EQ(bus.postings[1].patience, kAsLongAsItTakes);
}

TEST_F(WorkerServiceTest, WhatIsDueLeavesBeforeTheWorkThatMayTakeLong) {
  register_it();
  bus.clock.advance(seconds(1));
  int n_before = 0;
  worker.at_work = [&] { n_before = bus.n_sent<wire::Heartbeat>(); };
  worker.on_turn(bus.now());
  EXPECT_EQ(n_before, 1);
}

TEST_F(WorkerServiceTest, ItsOwnWorkMayBeDueFirst) {
  register_it();
  worker.next = bus.now() + milliseconds(7);
  EXPECT_EQ(worker.on_turn(bus.now()), worker.next);
}

// ---- draining

TEST_F(WorkerServiceTest, ADrainIsSaidAtOnceAndWithoutWorkEndsAtOnce) {
  register_it();
  worker.at_leave = [&] { EXPECT_EQ(bus.n_sent<wire::Goodbye>(), 0) << "its own part first"; };
  worker.drain(bus.now() + seconds(30));
  EXPECT_TRUE(last_beat().draining);
  EXPECT_EQ(last_beat().state, "draining");
  EXPECT_THAT(worker.said, ElementsAre("leave"));
  EXPECT_EQ(bus.n_sent<wire::Goodbye>(), 1);
  EXPECT_TRUE(worker.drained());
  EXPECT_EQ(n_within<wire::Goodbye>(seconds(1)), 0) << "once";
  EXPECT_THAT(worker.said, ElementsAre("leave"));
}

TEST_F(WorkerServiceTest, ADrainWithWorkWaitsUntilItIsDoneOrTheRouterNeedsItNoMore) {
  for (const bool by_router : {false, true}) {
    Apprentice other{speaker, metrics};
    bus.sent.clear();
    other.start(bus);
    wire::Speaker them(WorkerId{1}, Incarnation{1});
    const auto tell = [&](const wire::Message& message) {
      other.on_message(
          {.peer = {.socket = 1, .routing = {}}, .frames = wire::encode(them, {}, message)});
      other.on_turn(bus.now());
    };
    tell(wire::HelloReply{.accepted = true});
    other.is_busy = true;
    other.drain(bus.now() + seconds(30));
    for (int i = 0; i < 20; ++i) {
      bus.clock.advance(seconds(1));
      tell(wire::HeartbeatReply{.known = true, .needed = true});
      ASSERT_FALSE(other.drained()) << i;
    }
    EXPECT_EQ(bus.n_sent<wire::Goodbye>(), 0);
    other.is_busy = by_router;
    tell(wire::HeartbeatReply{.known = true, .needed = !by_router});
    EXPECT_TRUE(other.drained()) << by_router;
    EXPECT_EQ(bus.n_sent<wire::Goodbye>(), 1);
  }
}

TEST_F(WorkerServiceTest, ADrainEndsWithItsLastWordsBeforeItsTimeIsOver) {
  register_it();
  worker.is_busy = true;
  worker.drain(bus.now() + seconds(2));
  bus.clock.advance(milliseconds(1599));
  hear(wire::HeartbeatReply{.known = true, .needed = true});
  EXPECT_FALSE(worker.drained());
  bus.clock.advance(milliseconds(1));
  worker.on_turn(bus.now());
  EXPECT_TRUE(worker.drained());
  EXPECT_EQ(bus.n_sent<wire::Goodbye>(), 1);
}

TEST_F(WorkerServiceTest, ATurnThatEndsAfterTheTimeOfADrainStillSaysGoodbye) {
  register_it();
  worker.is_busy = true;
  worker.drain(bus.now() + seconds(1));
  worker.at_work = [&] { bus.clock.advance(milliseconds(1200)); };
  worker.on_turn(bus.now());
  EXPECT_THAT(worker.said, ElementsAre("leave"));
  EXPECT_EQ(bus.n_sent<wire::Goodbye>(), 1);
}

TEST_F(WorkerServiceTest, ADrainWaitsForNoRouterThatIsSilentOrHasLeft) {
  register_it();
  worker.is_busy = true;
  worker.drain(bus.now() + seconds(30));
  bus.clock.advance(RouterConnection::kRouterSilence);
  worker.on_turn(bus.now());
  EXPECT_FALSE(worker.drained());
  bus.clock.advance(milliseconds(1));
  worker.on_turn(bus.now());
  EXPECT_TRUE(worker.drained());

  Apprentice other{speaker, metrics};
  other.is_busy = true;
  other.start(bus);
  other.drain(bus.now() + seconds(30));
  EXPECT_TRUE(other.drained()) << "no router has ever accepted it";
}

TEST_F(WorkerServiceTest, ADrainEndsWhenAllThatItHasToSendHasLeft) {
  register_it();
  bus.waiting = 1;
  worker.drain(bus.now() + seconds(30));
  EXPECT_THAT(worker.said, ElementsAre("leave"));
  EXPECT_EQ(bus.n_sent<wire::Goodbye>(), 1);
  EXPECT_GT(bus.postings.back().patience, Duration{}) << "behind what was sent before";
  EXPECT_FALSE(worker.drained());
  bus.waiting = 0;
  EXPECT_TRUE(worker.drained());
}

}  // namespace
}  // namespace foretoken
