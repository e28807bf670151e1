#include "services/router/router_service.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/base/log.h"
#include "common/wire/client_codec.h"

namespace foretoken {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr SocketId kWorkers = 1, kClients = 2;

// Both doors of a router; the test is every peer.
class DoorsBus final : public Bus {
 public:
  TimePoint now() const override { return clock.now(); }
  SocketId bind(const std::string&, Door door) override {
    return door == Door::kInternal ? kWorkers : kClients;
  }
  SocketId connect(const std::string&) override { return 0; }
  void close(SocketId) override {}
  std::string endpoint(SocketId) const override { return {}; }
  void send(const Peer& to, Frames frames, const Posting& posting) override {
    sent.emplace_back(to, std::move(frames));
    postings.push_back(posting);
  }
  void forget(const Peer& peer) override { forgotten.push_back(peer); }
  std::size_t n_waiting(SocketId socket) override { return waiting[socket]; }
  std::optional<Delivery> receive(TimePoint) override { return std::nullopt; }

  ManualClock clock;
  std::vector<std::pair<Peer, Frames>> sent;
  std::vector<Posting> postings;  // of all that was sent
  std::vector<Peer> forgotten;
  std::map<SocketId, std::size_t> waiting;
};

class RouterServiceTest : public testing::Test {
 protected:
  void SetUp() override {
    configure_log(LogLevel::kError, LogFormat::kText, "test");
    bus.clock.set(TimePoint{} + seconds(100));
    service.start(bus);
  }
  // A worker with this key (role:name; empty without keys) sends a message.
  void hear(wire::Speaker& from, const std::string& user, const wire::Message& message) {
    Delivery delivery;
    delivery.peer = {.socket = kWorkers, .routing = user};
    delivery.frames = wire::encode(from, {}, message);
    delivery.user = user;
    service.on_message(std::move(delivery));
  }
  wire::HelloReply hello(wire::Speaker& from,
                         const std::string& user,
                         wire::Role role,
                         const std::string& name) {
    bus.sent.clear();
    hear(from, user, wire::Hello{.role = role, .name = name, .model_name = "m"});
    for (const auto& [to, frames] : bus.sent)
      if (const auto decoded = wire::decode(frames); decoded.ok())
        if (const auto* reply = std::get_if<wire::HelloReply>(&decoded->message)) return *reply;
    ADD_FAILURE() << "no HELLO_REPLY";
    return {};
  }
  void ask_metrics(const std::string& client, RequestId id) {
    wire::ClientRequest request;
    request.op = wire::ClientOp::kMetrics;
    request.request_id = id;
    Delivery delivery;
    delivery.peer = {.socket = kClients, .routing = client};
    delivery.frames = {wire::write_client_request(request)};
    service.on_message(std::move(delivery));
  }

  // The answer to a worker's heartbeat: whether it is needed.
  bool is_needed(wire::Speaker& from, bool draining) {
    bus.sent.clear();
    hear(from, "", wire::Heartbeat{.draining = draining});
    for (const auto& [to, frames] : bus.sent)
      if (const auto decoded = wire::decode(frames); decoded.ok())
        if (const auto* reply = std::get_if<wire::HeartbeatReply>(&decoded->message)) {
          EXPECT_TRUE(reply->known);
          return reply->needed;
        }
    ADD_FAILURE() << "no HEARTBEAT_REPLY";
    return false;
  }
  void from_client(const wire::ClientRequest& request,
                   const Peer& peer = {.socket = kClients, .routing = "a"}) {
    Delivery delivery;
    delivery.peer = peer;
    delivery.frames = {wire::write_client_request(request)};
    service.on_message(std::move(delivery));
  }
  static wire::ClientRequest generate(RequestId id) {
    wire::ClientRequest request;
    request.prompt = "hello";
    request.request_id = id;
    return request;
  }
  void from_worker(wire::Speaker& from, RequestId id, const wire::Message& message) {
    Delivery delivery;
    delivery.peer = {.socket = kWorkers, .routing = ""};
    delivery.frames = wire::encode(from, id, message);
    service.on_message(std::move(delivery));
  }
  template <class A>
  std::vector<A> answers() {
    std::vector<A> found;
    for (const auto& [to, frames] : bus.sent) {
      if (to.socket != kClients) continue;
      const auto answer = wire::read_client_answer(frames.at(0));
      if (answer.ok() && std::holds_alternative<A>(*answer)) found.push_back(std::get<A>(*answer));
    }
    return found;
  }
  std::size_t n_goodbyes() {
    std::size_t n = 0;
    for (const auto& [to, frames] : bus.sent)
      if (const auto decoded = wire::decode(frames); to.socket == kWorkers && decoded.ok())
        n += std::holds_alternative<wire::Goodbye>(decoded->message) ? 1 : 0;
    return n;
  }

  DoorsBus bus;
  wire::Speaker router{WorkerId{9}, Incarnation{9}};
  wire::Speaker target{WorkerId{1}, Incarnation{1}};
  wire::Speaker impostor{WorkerId{1}, Incarnation{2}};  // claims to be a new life of it
  Metrics metrics{Labels{}};
  RouterService service{{.client = "inproc://c", .router = "inproc://r"}, router, metrics};
};

TEST_F(RouterServiceTest, AWorkersKeyMustBeItsOwn) {
  EXPECT_FALSE(hello(target, "draft:draft-0", wire::Role::kTarget, "target-0").accepted);
  EXPECT_FALSE(hello(target, "target:target-1", wire::Role::kTarget, "target-0").accepted);
  EXPECT_TRUE(hello(target, "target:target-0", wire::Role::kTarget, "target-0").accepted);
}

TEST_F(RouterServiceTest, AnotherKeyCannotSpeakForAWorker) {
  ASSERT_TRUE(hello(target, "target:target-0", wire::Role::kTarget, "target-0").accepted);
  EXPECT_FALSE(hello(impostor, "draft:draft-0", wire::Role::kDraft, "draft-0").accepted);
  hear(target, "draft:draft-0", wire::Goodbye{.reason = "says somebody else"});
  EXPECT_EQ(1u, service.pool().ready(wire::Role::kTarget).size());
}

TEST_F(RouterServiceTest, AMessageOfAnotherMajorVersionIsLoggedOnceAMinute) {
  configure_log(LogLevel::kWarning, LogFormat::kText, "test");
  Delivery delivery;
  delivery.peer = {.socket = kWorkers, .routing = "a"};
  delivery.frames = wire::encode(target, {}, wire::Hello{.role = wire::Role::kTarget, .name = "t"});
  delivery.frames[0][4] = 2;
  testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) service.on_message(delivery);
  bus.clock.set(bus.clock.now() + seconds(60));
  service.on_message(delivery);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("refused a worker reason=\"peer speaks protocol 2."), std::string::npos)
      << log;
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 2) << log;
}

TEST_F(RouterServiceTest, WithoutKeysWorkersAreWhoTheySayTheyAre) {
  EXPECT_TRUE(hello(target, "", wire::Role::kTarget, "target-0").accepted);
  EXPECT_TRUE(hello(impostor, "", wire::Role::kTarget, "target-0").accepted) << "its next life";
}

TEST_F(RouterServiceTest, TwoClientsMayAskForMetricsUnderOneId) {
  ASSERT_TRUE(hello(target, "", wire::Role::kTarget, "target-0").accepted);
  bus.sent.clear();
  ask_metrics("a", {0, 7});
  ask_metrics("b", {0, 7});
  bus.clock.advance(milliseconds(600));  // the target does not answer
  service.on_turn(bus.now());
  std::vector<std::string> answered;
  for (const auto& [to, frames] : bus.sent)
    if (to.socket == kClients) answered.push_back(to.routing);
  std::sort(answered.begin(), answered.end());
  EXPECT_EQ((std::vector<std::string>{"a", "b"}), answered);
}

class LostServiceTest : public RouterServiceTest {
 protected:
  static constexpr const char* kUp = "foretoken_peer_up{peer=\"target-0\",role=\"target\"} ";
  void SetUp() override {
    RouterServiceTest::SetUp();
    ASSERT_TRUE(hello(target, "", wire::Role::kTarget, "target-0").accepted);
  }
  std::string text() {
    ask_metrics("a", {0, 7});
    return metrics.text();
  }
  // Longer than the pool shows a lost worker.
  void lose_for_five_minutes() {
    service.on_undelivered({.socket = kWorkers, .routing = ""}, {});
    bus.clock.advance(seconds(300));
    service.on_turn(bus.now());
    ASSERT_TRUE(service.pool().all().empty());
  }
};

TEST_F(LostServiceTest, StaysInTheMetricsUntilItIsHereAgain) {
  EXPECT_NE(std::string::npos, text().find(kUp + std::string("1\n"))) << text();
  lose_for_five_minutes();
  EXPECT_NE(std::string::npos, text().find(kUp + std::string("0\n"))) << text();
  wire::Speaker elsewhere{WorkerId{2}, Incarnation{3}};
  ASSERT_TRUE(hello(elsewhere, "", wire::Role::kTarget, "target-0").accepted);
  EXPECT_NE(std::string::npos, text().find(kUp + std::string("1\n"))) << text();
}

TEST_F(LostServiceTest, IsNotShownAfterItsGoodbye) {
  lose_for_five_minutes();
  hear(target, "", wire::Goodbye{});
  EXPECT_EQ(std::string::npos, text().find(kUp)) << text();
}

TEST_F(LostServiceTest, OneThatLeavesIsNotLost) {
  hear(target, "", wire::Goodbye{});
  EXPECT_EQ(std::string::npos, text().find(kUp)) << text();
}

// Names that clients write are no labels: there are any number of them.
TEST_F(RouterServiceTest, TheQueueIsListedByModelAndAModelWithoutOneShowsZero) {
  wire::Speaker other{WorkerId{2}, Incarnation{1}};
  RouterService starting{{.client = "inproc://c",
                          .router = "inproc://r",
                          .rules = {.registration = seconds(3)}},  // an unknown model may yet come
                         router,
                         metrics};
  starting.start(bus);
  const auto deliver = [&](SocketId socket, Frames frames) {
    starting.on_message({.peer = {.socket = socket, .routing = "a"}, .frames = std::move(frames)});
  };
  const auto ask = [&](const wire::ClientRequest& request) {
    deliver(kClients, {wire::write_client_request(request)});
  };
  const auto expect_waiting = [&](const std::map<std::string, int>& expected) {
    wire::ClientRequest question{.op = wire::ClientOp::kMetrics};
    question.request_id = RequestId{0, 99};
    ask(question);
    const std::string text = metrics.text();
    for (const auto& [model, n] : expected)
      EXPECT_NE(std::string::npos, text.find("foretoken_num_requests_waiting{model_name=\"" +
                                             model + "\"} " + std::to_string(n) + "\n"))
          << text;
    EXPECT_EQ(std::string::npos, text.find("nowhere"));
  };
  expect_waiting({{"", 0}});
  deliver(kWorkers, wire::encode(target, {},
                                 wire::Hello{.role = wire::Role::kTarget,
                                             .name = "target-0",
                                             .model_name = "m",
                                             .aliases = {"short"}}));
  deliver(kWorkers,
          wire::encode(
              other, {},
              wire::Hello{.role = wire::Role::kTarget, .name = "target-1", .model_name = "n"}));
  std::uint64_t n_asked = 0;
  for (const char* model : {"m", "short", "nowhere"}) {
    auto request = generate({0, ++n_asked});
    request.model = model;
    ask(request);
  }
  EXPECT_EQ(3u, starting.table().n_waiting());
  expect_waiting({{"", 1}, {"m", 2}, {"n", 0}});
  for (std::uint64_t i = 1; i <= n_asked; ++i) {
    wire::ClientRequest cancel{.op = wire::ClientOp::kCancel};
    cancel.request_id = RequestId{0, i};
    ask(cancel);
  }
  expect_waiting({{"", 0}, {"m", 0}, {"n", 0}});
}

// The metrics of dozens of services are more than a string of a request may be.
TEST_F(RouterServiceTest, MetricsOfManyServicesAreOneAnswerUpToItsLimit) {
  const auto ask_all = [&](std::uint64_t n_workers) {
    for (std::uint64_t i = 1; i <= n_workers; ++i) {
      wire::Speaker worker{WorkerId{100 + i}, Incarnation{1}};
      ASSERT_TRUE(hello(worker, "", wire::Role::kTarget, "target-" + std::to_string(i)).accepted);
    }
    bus.sent.clear();
    ask_metrics("a", {0, n_workers});
    RequestId asked{};
    for (const auto& [to, frames] : bus.sent)
      if (const auto decoded = wire::decode(frames);
          decoded.ok() && std::holds_alternative<wire::MetricsRequest>(decoded->message))
        asked = decoded->header.request;
    for (std::uint64_t i = 1; i <= n_workers; ++i) {
      wire::Speaker worker{WorkerId{100 + i}, Incarnation{1}};
      const std::string text = "many{service=\"" + std::to_string(i) + "\"} ";
      from_worker(worker, asked, wire::MetricsReply{.text = text + std::string(900'000, '1')});
    }
  };
  ask_all(3);
  ASSERT_EQ(1u, answers<wire::MetricsText>().size());
  EXPECT_GT(answers<wire::MetricsText>().front().metrics_text.size(), 2'700'000u);
  ask_all(5);
  EXPECT_TRUE(answers<wire::MetricsText>().empty());
  ASSERT_EQ(1u, answers<wire::ClientError>().size());
  EXPECT_NE(answers<wire::ClientError>().front().error.message.find("limit"), std::string::npos);
}

TEST_F(RouterServiceTest, AnAnswerThatIsTooLargeIsAnErrorThatSaysSo) {
  RouterService small{
      {.client = "inproc://c", .router = "inproc://r", .max_answer_bytes = 100}, router, metrics};
  small.start(bus);
  wire::ClientRequest request{.op = wire::ClientOp::kStatus};
  request.request_id = RequestId{0, 7};
  small.on_message({.peer = {.socket = kClients, .routing = "a"},
                    .frames = {wire::write_client_request(request)}});
  const auto errors = answers<wire::ClientError>();
  ASSERT_EQ(1u, errors.size());
  EXPECT_EQ(wire::hex_of(RequestId{0, 7}), errors[0].id);
  EXPECT_NE(errors[0].error.message.find("bytes; the limit is 100"), std::string::npos);
  EXPECT_TRUE(answers<wire::StatusReply>().empty());
}

TEST_F(RouterServiceTest, PassesAreAskedOfTargetsAndDraftsAlone) {
  wire::Speaker tokenizer{WorkerId{30}, Incarnation{1}};
  ASSERT_TRUE(hello(target, "", wire::Role::kTarget, "target-0").accepted);
  ASSERT_TRUE(hello(tokenizer, "", wire::Role::kTokenizer, "tokenizer-0").accepted);
  bus.sent.clear();
  wire::ClientRequest request{.op = wire::ClientOp::kPasses};
  request.request_id = RequestId{0, 7};
  from_client(request);
  std::vector<RequestId> asked;
  for (const auto& [to, frames] : bus.sent)
    if (const auto decoded = wire::decode(frames); decoded.ok())
      if (const auto* question = std::get_if<wire::MetricsRequest>(&decoded->message)) {
        EXPECT_TRUE(question->passes);
        asked.push_back(decoded->header.request);
      }
  ASSERT_EQ(1u, asked.size());
  from_worker(
      target, asked[0],
      wire::MetricsReply{.passes = {.now_us = 9, .first = 2, .ago_us = {5}, .tokens = {3}}});
  const auto replies = answers<wire::PassesReply>();
  ASSERT_EQ(1u, replies.size());
  ASSERT_EQ(1u, replies[0].passes.size());
  const wire::ServicePasses& of = replies[0].passes[0];
  EXPECT_EQ("target target-0 m", of.role + " " + of.name + " " + of.model);
  EXPECT_EQ(2u, of.passes.first);
  EXPECT_EQ((std::vector<std::uint32_t>{5}), of.passes.ago_us);
  EXPECT_EQ((std::vector<std::uint32_t>{3}), of.passes.tokens);
}

// Beyond a few within a moment the answer is that of a moment ago, under the id that was asked.
TEST_F(RouterServiceTest, AFloodOfStatusRequestsIsAnsweredFromAMomentAgo) {
  const auto n_services = [&](std::uint64_t id) {
    bus.sent.clear();
    wire::ClientRequest request{.op = wire::ClientOp::kStatus};
    request.request_id = RequestId{0, id};
    from_client(request);
    const auto replies = answers<wire::StatusReply>();
    EXPECT_EQ(1u, replies.size());
    EXPECT_EQ(replies.empty() ? "" : replies[0].id, wire::hex_of(RequestId{0, id}));
    return replies.empty() ? 0 : replies[0].services.size();
  };
  for (std::uint64_t i = 0; i < 15; ++i) EXPECT_EQ(1u, n_services(i)) << "the router alone";
  ASSERT_TRUE(hello(target, "", wire::Role::kTarget, "target-0").accepted);
  EXPECT_EQ(2u, n_services(16)) << "the sixteenth is fresh";
  wire::Speaker draft{WorkerId{3}, Incarnation{1}};
  ASSERT_TRUE(hello(draft, "", wire::Role::kDraft, "draft-0").accepted);
  for (std::uint64_t i = 17; i < 100; ++i) EXPECT_EQ(2u, n_services(i)) << "of a moment ago";
  bus.clock.advance(milliseconds(50));
  EXPECT_EQ(3u, n_services(100));
}

TEST_F(RouterServiceTest, ADraftThatATargetSetAsideIsNamedInItsNote) {
  wire::Speaker draft{WorkerId{5}, Incarnation{1}};
  ASSERT_TRUE(hello(target, "", wire::Role::kTarget, "target-0").accepted);
  hear(draft, "",
       wire::Hello{.role = wire::Role::kDraft, .name = "draft-0", .endpoint = "ipc://d"});
  hear(target, "",
       wire::Heartbeat{.set_aside = {{WorkerId{5}, "4 of 13360 proposals accepted", 30}}});
  bus.sent.clear();
  wire::ClientRequest request;
  request.op = wire::ClientOp::kStatus;
  request.request_id = RequestId{0, 7};
  Delivery delivery;
  delivery.peer = {.socket = kClients, .routing = "a"};
  delivery.frames = {wire::write_client_request(request)};
  service.on_message(std::move(delivery));
  std::map<std::string, std::string> notes;
  for (const auto& [to, frames] : bus.sent)
    if (const auto answer = wire::read_client_answer(frames.at(0));
        to.socket == kClients && answer.ok())
      for (const auto& one : std::get<wire::StatusReply>(*answer).services)
        notes[one.name] = one.note;
  EXPECT_EQ("set aside by target-0: 4 of 13360 proposals accepted; tried again in 30 s",
            notes["draft-0"]);
  EXPECT_EQ("", notes["target-0"]);
}

TEST_F(RouterServiceTest, EachTargetBeginsWithAnotherDraft) {
  std::map<std::string, std::map<std::uint64_t, std::uint32_t>> order;  // by target, by draft
  for (std::uint64_t i = 0; i < 3; ++i) {
    const std::string name = "target-" + std::to_string(i);
    wire::Speaker speaker{WorkerId{10 + i}, Incarnation{1}};
    hear(speaker, "target:" + name,
         wire::Hello{.role = wire::Role::kTarget, .name = name, .model_name = "m"});
  }
  for (std::uint64_t i = 0; i < 2; ++i) {
    const std::string name = "draft-" + std::to_string(i);
    wire::Speaker speaker{WorkerId{20 + i}, Incarnation{1}};
    hear(speaker, "draft:" + name,
         wire::Hello{.role = wire::Role::kDraft, .name = name, .endpoint = "ipc://" + name});
  }
  for (const auto& [to, frames] : bus.sent)
    if (const auto decoded = wire::decode(frames); to.socket == kWorkers && decoded.ok())
      if (const auto* assign = std::get_if<wire::Assign>(&decoded->message))
        order[to.routing][assign->draft.value] = assign->order;
  EXPECT_EQ((std::map<std::uint64_t, std::uint32_t>{{20, 0}, {21, 1}}), order["target:target-0"]);
  EXPECT_EQ((std::map<std::uint64_t, std::uint32_t>{{20, 1}, {21, 0}}), order["target:target-1"]);
  EXPECT_EQ(order["target:target-0"], order["target:target-2"]);
}

TEST_F(RouterServiceTest, TheStatusSaysOfEachModelWhatClientsNeed) {
  wire::Speaker second{WorkerId{2}, Incarnation{1}}, third{WorkerId{3}, Incarnation{1}},
      tokenizer{WorkerId{4}, Incarnation{1}};
  const auto join = [&](wire::Speaker& from, const std::string& name, const std::string& model,
                        const std::vector<std::string>& aliases, Fingerprint fingerprint) {
    hear(from, "target:" + name,
         wire::Hello{.role = wire::Role::kTarget,
                     .name = name,
                     .fingerprints = {fingerprint, 1, fingerprint, 1},
                     .model_name = model,
                     .aliases = aliases,
                     .max_model_len = 100,
                     .sampling = {.temperature = 0.6f, .top_k = 20}});
  };
  join(target, "target-a-0", "a", {"x"}, 7);
  join(second, "target-a-1", "a", {"x", "y", "z*"}, 7);
  join(third, "target-b-0", "b", {"default"}, 8);
  hear(tokenizer, "tokenizer:tokenizer-a-0",
       wire::Hello{.role = wire::Role::kTokenizer,
                   .name = "tokenizer-a-0",
                   .fingerprints = {.vocabulary = 7, .text = 1},
                   .model_name = "a"});
  bus.sent.clear();
  wire::ClientRequest request{.op = wire::ClientOp::kStatus};
  request.request_id = RequestId{0, 7};
  from_client(request);
  const auto statuses = answers<wire::StatusReply>();
  ASSERT_EQ(1u, statuses.size());
  EXPECT_EQ((std::vector<std::string>{"a", "b", "default", "x", "y"}), statuses[0].models);
  EXPECT_EQ((std::vector<wire::ModelStatus>{{.name = "a",
                                             .aliases = {"x", "y", "z*"},
                                             .max_model_len = 100,
                                             .n_targets = 2,
                                             .ready = true,
                                             .sampling = {.temperature = 0.6f, .top_k = 20}},
                                            {.name = "b",
                                             .aliases = {"default"},
                                             .max_model_len = 100,
                                             .n_targets = 1,
                                             .is_default = true,
                                             .sampling = {.temperature = 0.6f, .top_k = 20}}}),
            statuses[0].model_states);
  for (const auto& each : statuses[0].services)
    EXPECT_EQ(each.name == "target-b-0" ? "no tokenizer has its vocabulary and chat template" : "",
              each.note)
        << each.name;
}

TEST_F(RouterServiceTest, TheLinksOfAServiceThatIsGoneAreNotShown) {
  const auto shown = [&]() -> wire::ServiceStatus {
    bus.sent.clear();
    wire::ClientRequest request;
    request.op = wire::ClientOp::kStatus;
    request.request_id = RequestId{0, 7};
    Delivery delivery;
    delivery.peer = {.socket = kClients, .routing = "a"};
    delivery.frames = {wire::write_client_request(request)};
    service.on_message(std::move(delivery));
    for (const auto& [to, frames] : bus.sent) {
      const auto answer = wire::read_client_answer(frames.at(0));
      if (!answer.ok() || !std::holds_alternative<wire::StatusReply>(*answer)) continue;
      for (const auto& one : std::get<wire::StatusReply>(*answer).services)
        if (one.name == "target-0") return one;
    }
    ADD_FAILURE() << "target-0 is not in the status";
    return {};
  };
  ASSERT_TRUE(hello(target, "", wire::Role::kTarget, "target-0").accepted);
  hear(target, "", wire::Heartbeat{.links = "draft-0 shared_memory"});
  EXPECT_EQ("draft-0 shared_memory", shown().links);
  for (int i = 0; i < 25; ++i) {
    bus.clock.advance(milliseconds(100));
    service.on_turn(bus.now());
  }
  EXPECT_EQ("gone", shown().state);
  EXPECT_EQ("", shown().links);
}

// What the client door hears: one message of these frames.
wire::ClientError error_to(DoorsBus& bus, RouterService& service, Frames frames) {
  bus.sent.clear();
  Delivery delivery;
  delivery.peer = {.socket = kClients, .routing = "a"};
  delivery.frames = std::move(frames);
  service.on_message(std::move(delivery));
  EXPECT_EQ(1u, bus.sent.size());
  if (bus.sent.empty()) return {};
  const auto answer = wire::read_client_answer(bus.sent[0].second.at(0));
  EXPECT_TRUE(answer.ok() && std::holds_alternative<wire::ClientError>(*answer));
  return answer.ok() ? std::get<wire::ClientError>(*answer) : wire::ClientError{};
}

TEST_F(RouterServiceTest, AMessageThatIsNoRequestIsAnsweredInWords) {
  EXPECT_NE(error_to(bus, service, {""}).error.message.find("end of the data"), std::string::npos);
  EXPECT_EQ(error_to(bus, service, {"a", "b"}).error.message,
            "a request is one frame; this one has 2");
  EXPECT_EQ(error_to(bus, service, Frames(8, "")).error.message,
            "a request is one frame; this one has 8 or more");
}

TEST_F(RouterServiceTest, ADrainEndsWhenAllThatItHasToSendHasLeft) {
  for (const SocketId socket : {kClients, kWorkers}) {
    bus.waiting[socket] = 1;
    service.drain(bus.now() + seconds(300));
    EXPECT_FALSE(service.drained());
    bus.waiting[socket] = 0;
    EXPECT_TRUE(service.drained());
  }
}

// What ends a request waits for half a minute, in a reserve; a status is old by then.
TEST_F(RouterServiceTest, WhatIsRefusedWaitsForAClientWithoutTheReserve) {
  (void)error_to(bus, service, {"a", "b"});
  EXPECT_EQ(bus.postings.back().patience, seconds(30));
  EXPECT_EQ(bus.postings.back().room, Room::kShared);
  EXPECT_EQ(bus.postings.back().ticket, Ticket{});
  wire::ClientRequest request{.op = wire::ClientOp::kStatus};
  request.request_id = RequestId{0, 7};
  from_client(request);
  EXPECT_EQ(bus.postings.back().patience, seconds(10));
  EXPECT_EQ(bus.postings.back().room, Room::kShared);
}

// The last answers of a client that does not read wait for half a minute.
TEST_F(RouterServiceTest, ADrainWaitsAMomentForClientsThatDoNotRead) {
  ASSERT_TRUE(hello(target, "", wire::Role::kTarget, "target-0").accepted);
  bus.waiting[kClients] = 1;
  service.drain(bus.now() + seconds(30));
  EXPECT_EQ(1u, n_goodbyes()) << "workers need not wait for clients";
  bus.clock.advance(milliseconds(2900));
  EXPECT_FALSE(service.drained());
  bus.clock.advance(milliseconds(100));
  EXPECT_TRUE(service.drained());
}

TEST_F(RouterServiceTest, WhatWaitsForAWorkerThatIsGoneIsForgotten) {
  ASSERT_TRUE(hello(target, "target:target-0", wire::Role::kTarget, "target-0").accepted);
  EXPECT_EQ(bus.postings.back().patience, Duration{}) << "a greeting is said again anyway";
  hear(target, "target:target-0", wire::Goodbye{.reason = "drained"});
  ASSERT_EQ(bus.forgotten.size(), 1u);
  EXPECT_EQ(bus.forgotten[0].routing, "target:target-0");
}

TEST_F(RouterServiceTest, AQuestionWaitsInTheFlowOfItsTenant) {
  wire::Speaker tokenizer{WorkerId{2}, Incarnation{1}};
  ASSERT_TRUE(hello(tokenizer, "", wire::Role::kTokenizer, "tokenizer-0").accepted);
  ASSERT_TRUE(hello(target, "", wire::Role::kTarget, "target-0").accepted);
  bus.sent.clear();
  wire::ClientRequest tokenize = generate({0, 9});
  tokenize.op = wire::ClientOp::kTokenize;
  tokenize.tenant = "acme";
  from_client(tokenize);
  std::vector<FlowId> flows;
  for (const auto& [to, frames] : bus.sent)
    if (const auto sent = wire::decode(frames); to.socket == kWorkers && sent.ok())
      if (const auto* encode = std::get_if<wire::Encode>(&sent->message))
        flows.push_back(encode->flow);
  EXPECT_EQ(flows, std::vector<FlowId>{flow_of("acme", {})});
}

// All services are asked to stop at the same moment: the workers say so before the router does.
TEST_F(RouterServiceTest, ADrainEndsWhatWasAcceptedWithWorkersThatDrainThemselves) {
  wire::Speaker tokenizer{WorkerId{2}, Incarnation{1}}, draft{WorkerId{3}, Incarnation{1}};
  ASSERT_TRUE(hello(tokenizer, "", wire::Role::kTokenizer, "tokenizer-0").accepted);
  ASSERT_TRUE(hello(target, "", wire::Role::kTarget, "target-0").accepted);
  ASSERT_TRUE(hello(draft, "", wire::Role::kDraft, "draft-0").accepted);
  const RequestId id{0, 7};
  from_client(generate(id));
  bus.clock.advance(milliseconds(1));
  for (wire::Speaker* worker : {&tokenizer, &target, &draft}) {
    EXPECT_TRUE(is_needed(*worker, false)) << "one that does not drain is not asked to leave";
    EXPECT_TRUE(is_needed(*worker, true));
  }
  service.drain(bus.now() + seconds(30));
  EXPECT_FALSE(service.drained());
  bus.sent.clear();
  from_client(generate({0, 8}));
  wire::ClientRequest tokenize = generate({0, 9});
  tokenize.op = wire::ClientOp::kTokenize;
  from_client(tokenize);
  ASSERT_EQ(2u, answers<wire::ClientError>().size());
  for (const auto& refused : answers<wire::ClientError>()) {
    EXPECT_EQ("draining", refused.error.code);
    EXPECT_GT(refused.error.retry_after_ms, 0u);
  }
  bus.clock.advance(seconds(2));
  EXPECT_TRUE(is_needed(draft, true)) << "the last to leave, or what runs would end later";

  bus.sent.clear();
  from_worker(tokenizer, id, wire::Encoded{.tokens = {1, 2}});
  from_worker(target, id, wire::Opened{});
  from_worker(target, id, wire::Tokens{.position = 2, .ids = {3}});
  from_worker(target, id, wire::Done{.reason = FinishReason::kLength, .n_generated = 1});
  EXPECT_FALSE(is_needed(target, true));
  EXPECT_TRUE(is_needed(tokenizer, true));
  bus.sent.clear();
  from_worker(tokenizer, id, wire::Text{.next = 3, .text = "x", .final = true});
  EXPECT_EQ(1u, answers<wire::ClientReply>().size());
  service.on_turn(bus.now());
  EXPECT_TRUE(service.drained());
  EXPECT_EQ(3u, n_goodbyes()) << "the workers need not wait for their next heartbeat";
  bus.sent.clear();
  service.on_turn(bus.now());
  EXPECT_EQ(0u, n_goodbyes());
  from_client(generate(id));
  EXPECT_EQ(1u, answers<wire::ClientReply>().size()) << "asked again for an answer it has";
}

TEST_F(RouterServiceTest, ARequestThatADrainRefusesIsNotCountedAsUnreadable) {
  service.drain(bus.now() + seconds(30));
  from_client(generate({0, 8}));
  wire::ClientRequest tokenize = generate({0, 9});
  tokenize.op = wire::ClientOp::kTokenize;
  from_client(tokenize);
  ask_metrics("a", {0, 10});
  ASSERT_EQ(1u, answers<wire::MetricsText>().size());
  const std::string text = answers<wire::MetricsText>().front().metrics_text;
  EXPECT_NE(text.find("\nforetoken_bad_requests_total 0\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\nforetoken_request_refused_total 1\n"), std::string::npos) << text;
}

TEST_F(RouterServiceTest, ADraftThatIsStoppedAloneLeavesSoon) {
  wire::Speaker tokenizer{WorkerId{2}, Incarnation{1}}, draft{WorkerId{3}, Incarnation{1}};
  ASSERT_TRUE(hello(tokenizer, "", wire::Role::kTokenizer, "tokenizer-0").accepted);
  ASSERT_TRUE(hello(target, "", wire::Role::kTarget, "target-0").accepted);
  ASSERT_TRUE(hello(draft, "", wire::Role::kDraft, "draft-0").accepted);
  EXPECT_FALSE(is_needed(draft, true)) << "nothing runs";
  from_client(generate({0, 7}));
  EXPECT_TRUE(is_needed(draft, true)) << "perhaps the router has to stop in a moment, too";
  bus.clock.advance(milliseconds(900));
  hear(target, "", wire::Heartbeat{});
  hear(tokenizer, "", wire::Heartbeat{});
  EXPECT_TRUE(is_needed(draft, true));
  bus.clock.advance(milliseconds(200));
  EXPECT_FALSE(is_needed(draft, true));
}

TEST_F(RouterServiceTest, WhatDoesNotFitIntoTheDrainEndsInWordsBeforeTheEnd) {
  wire::Speaker tokenizer{WorkerId{2}, Incarnation{1}};
  ASSERT_TRUE(hello(tokenizer, "", wire::Role::kTokenizer, "tokenizer-0").accepted);
  ASSERT_TRUE(hello(target, "", wire::Role::kTarget, "target-0").accepted);
  from_client(generate({0, 7}));
  wire::ClientRequest tokenize = generate({0, 8});
  tokenize.op = wire::ClientOp::kTokenize;
  from_client(tokenize);
  service.drain(bus.now() + seconds(1));
  bus.sent.clear();
  bus.clock.advance(milliseconds(499));
  service.on_turn(bus.now());
  EXPECT_TRUE(answers<wire::ClientError>().empty());
  bus.clock.advance(milliseconds(1));
  service.on_turn(bus.now());
  ASSERT_EQ(2u, answers<wire::ClientError>().size());
  for (const auto& cut : answers<wire::ClientError>()) {
    EXPECT_EQ("draining", cut.error.code);
    EXPECT_EQ(1000u, cut.error.retry_after_ms);
  }
  EXPECT_TRUE(service.drained());
}

// A streamed request of one client, with one piece on its way to it.
class RouterServiceStreamTest : public RouterServiceTest {
 protected:
  const RequestId id{0, 7};
  const Peer client{.socket = kClients, .routing = "a"};
  wire::Speaker tokenizer{WorkerId{2}, Incarnation{1}};

  void SetUp() override {
    RouterServiceTest::SetUp();
    ASSERT_TRUE(hello(tokenizer, "", wire::Role::kTokenizer, "tokenizer-0").accepted);
    ASSERT_TRUE(hello(target, "", wire::Role::kTarget, "target-0").accepted);
    ask(client);
    from_worker(tokenizer, id, wire::Encoded{.tokens = {1, 2}});
    from_worker(target, id, wire::Opened{});
    from_worker(target, id, wire::Tokens{.position = 2, .ids = {3}});
    from_worker(tokenizer, id, wire::Text{.next = 3, .text = "x"});
    ASSERT_EQ(answers<wire::ClientPiece>().size(), 1u);
  }

  Ticket ticket_of_last_answer() const {
    const auto of_answer = [](const Posting& posting) { return posting.ticket.series != 0; };
    const auto last = std::find_if(bus.postings.rbegin(), bus.postings.rend(), of_answer);
    return last == bus.postings.rend() ? Ticket{} : last->ticket;
  }

  void ask(const Peer& peer) {
    wire::ClientRequest request = generate(id);
    request.stream = true;
    from_client(request, peer);
  }
};

// A stream with a hole is worse than none.
TEST_F(RouterServiceStreamTest, APieceThatFindsNoRoomEndsItsRequestInWords) {
  const Posting piece = bus.postings.back();
  EXPECT_EQ(piece.ticket.low, 7u);
  EXPECT_EQ(piece.patience, seconds(10));
  EXPECT_EQ(piece.part, Part::kFirst);

  bus.sent.clear();
  service.on_dropped(client, piece.ticket);
  std::vector<wire::ClientError> errors;
  std::size_t n_closed = 0;
  for (const auto& [to, frames] : bus.sent) {
    if (to.socket == kClients) {
      const auto answer = wire::read_client_answer(frames.at(0));
      ASSERT_TRUE(answer.ok() && std::holds_alternative<wire::ClientError>(*answer));
      errors.push_back(std::get<wire::ClientError>(*answer));
    } else if (const auto decoded = wire::decode(frames); decoded.ok()) {
      n_closed += std::holds_alternative<wire::Close>(decoded->message) ? 1 : 0;
    }
  }
  ASSERT_EQ(1u, errors.size());
  EXPECT_EQ("cancelled", errors[0].error.code);
  EXPECT_EQ(
      "the client reads its pieces too slowly: at most 4 MiB wait for it, 16 MiB while it takes "
      "some, 64 MiB for all clients together, and for at most 10 s while it takes none",
      errors[0].error.message);
  EXPECT_EQ(1u, n_closed);
  const auto is_end = [&](const Posting& posting) {
    return posting.ticket.high == piece.ticket.high && posting.ticket.low == piece.ticket.low &&
           posting.room == Room::kReserved && posting.part == Part::kFirst;
  };
  EXPECT_EQ(1, std::count_if(bus.postings.begin(), bus.postings.end(), is_end))
      << "the error takes the place of pieces that wait";
}

// It asks again before the loss is known: the answer begins anew.
TEST_F(RouterServiceStreamTest, APieceLostOfAFormerSeriesDoesNotEndTheRequest) {
  const Ticket former = bus.postings.back().ticket;
  ask(client);
  const Ticket current = bus.postings.back().ticket;
  ASSERT_NE(former, current);
  bus.sent.clear();
  service.on_dropped(client, former);
  EXPECT_EQ(1u, service.table().size());
  EXPECT_TRUE(bus.sent.empty());
  service.on_dropped(client, current);
  EXPECT_EQ(0u, service.table().size());
  EXPECT_EQ(1u, answers<wire::ClientError>().size());
}

TEST_F(RouterServiceStreamTest, APieceLostOnAFormerConnectionDoesNotEndTheRequest) {
  const Peer other{.socket = kClients, .routing = "b"};
  const Ticket former = bus.postings.back().ticket;
  ask(other);
  bus.sent.clear();
  service.on_dropped(client, former);
  EXPECT_EQ(1u, service.table().size());
  ASSERT_EQ(1u, bus.sent.size());
  EXPECT_EQ("a", bus.sent[0].first.routing) << "an error for the series that has a hole";
}

// The report was on its way when the request ended: an error is whole without what was before it.
TEST_F(RouterServiceStreamTest, APieceLostBeforeAnErrorGivesNoSecondError) {
  const Ticket former = bus.postings.back().ticket;
  from_worker(target, id, wire::Failed{.code = ErrorCode::kInvalidValue, .message = "no"});
  ASSERT_EQ(1u, answers<wire::ClientError>().size());
  const Ticket end = ticket_of_last_answer();
  service.on_dropped(client, former);
  EXPECT_EQ(1u, answers<wire::ClientError>().size());
  service.on_dropped(client, end);
  EXPECT_EQ(2u, answers<wire::ClientError>().size()) << "the error itself was lost";
}

TEST_F(RouterServiceStreamTest, AReplyThatIsSentAgainOutlivesTheReportOfItsFormerLoss) {
  from_worker(target, id, wire::Done{.reason = FinishReason::kStop, .n_generated = 1});
  from_worker(tokenizer, id, wire::Text{.next = 3, .final = true, .offset = 1});
  ASSERT_EQ(1u, answers<wire::ClientReply>().size());
  const Ticket former = ticket_of_last_answer();
  ask(client);
  ASSERT_EQ(2u, answers<wire::ClientReply>().size());
  const Ticket again = ticket_of_last_answer();
  ASSERT_NE(former, again);
  service.on_dropped(client, former);
  EXPECT_TRUE(answers<wire::ClientError>().empty());
  service.on_dropped(client, again);
  EXPECT_EQ(1u, answers<wire::ClientError>().size());
}

// Its last message has been sent, and goes with what was lost before it.
TEST_F(RouterServiceTest, AnAnswerThatIsLostAfterItsEndWasSentEndsInAnError) {
  const Peer client{.socket = kClients, .routing = "a"};
  service.on_dropped(client, {0, 7});
  const auto errors = answers<wire::ClientError>();
  ASSERT_EQ(1u, errors.size());
  EXPECT_EQ("cancelled", errors[0].error.code);
  EXPECT_EQ(wire::hex_of(RequestId{0, 7}), errors[0].id);
  EXPECT_EQ(bus.postings.back().ticket, Ticket{}) << "should that one be lost, it is only counted";
}

}  // namespace
}  // namespace foretoken
