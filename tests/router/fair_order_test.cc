// Who gets a target's places: flows (tenants, connections) in turn, by weight; few wait at the
// target itself; a tokenizer that has a prompt is not asked for it again and again. The test plays
// workers and clients.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "services/router/request_table.h"

namespace foretoken {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class FairOrderTest : public testing::Test {
 protected:
  static constexpr WorkerId kTokenizer{1}, kTarget{2}, kSecondTokenizer{4};
  static constexpr std::uint32_t kPlaces = 16, kKept = 2;

  void SetUp() override {
    join(kTokenizer, wire::Role::kTokenizer);
    join(kTarget, wire::Role::kTarget);
  }
  void join(WorkerId id, wire::Role role, std::uint64_t incarnation = 1) {
    wire::Header header;
    header.sender = id;
    header.incarnation = Incarnation{incarnation};
    wire::Hello hello{.role = role,
                      .name = "w" + std::to_string(id.value),
                      .fingerprints = {1, 2, 3, 4},
                      .model_name = "m",
                      .vocab_size = 1000,
                      .max_model_len = 4000,
                      .max_sequences = kPlaces,
                      .max_waiting = 256};
    pool.hello(header, {.socket = 1, .routing = hello.name}, hello, now);
  }
  void heartbeat(std::uint32_t queued, bool draining = false) {
    wire::Header header;
    header.sender = kTarget;
    header.incarnation = Incarnation{1};
    pool.heartbeat(header, {.socket = 1, .routing = "w2"}, {.queued = queued, .draining = draining},
                   now);
  }
  // One request with its prompt encoded: it waits for a place, or has one.
  RequestId ask(const std::string& tenant,
                std::uint32_t max_tokens = 60,
                std::uint8_t priority = 0) {
    const RequestId id{5, ++n_};
    wire::ClientRequest request;
    request.prompt = "p";
    request.tenant = tenant;
    request.priority = priority;
    request.params.max_tokens = max_tokens;
    request.given.insert("max_tokens");
    table.submit({.socket = 2, .routing = "c"}, id, std::move(request), n_, now, out);
    table.on_message(kTokenizer, id, wire::Encoded{.tokens = {1, 2, 3, 4}}, now, out);
    take();
    return id;
  }
  void take() {
    for (const Action& action : std::exchange(out, {})) {
      if (const auto* to = std::get_if<ToWorker>(&action)) {
        if (std::holds_alternative<wire::Open>(to->message) &&
            std::find(opened.begin(), opened.end(), to->request) == opened.end())
          opened.push_back(to->request);
        ++n_sent[to->message.index()];
      } else if (const auto* error =
                     std::get_if<wire::ClientError>(&std::get<ToClient>(action).answer)) {
        errors.push_back(*error);
      }
    }
  }
  void take_kept_places() {
    for (std::uint32_t i = 0; i < kKept; ++i) ask("guest " + std::to_string(i));
  }
  void start(RequestId id) {
    table.on_message(kTarget, id, wire::Tokens{.position = 4, .ids = {9}}, now, out);
    take();
  }
  void finish(RequestId id) {
    start(id);
    table.on_message(kTarget, id, wire::Done{.reason = FinishReason::kLength, .n_generated = 1},
                     now, out);
    take();
  }
  void tick(Duration by) {
    now += by;
    for (const Worker* worker : pool.all()) pool.find(worker->id)->last_seen = now;
    table.tick(now, out);
    take();
  }
  template <class M>
  int n_of() {
    return n_sent[wire::Message(M{}).index()];
  }

  TimePoint now = TimePoint{} + seconds(1000);
  Pool pool{seconds(1)};
  RequestTable table{RequestRules{.max_requests = 320, .tenant_weights = {{"gold", 3}}}, pool};
  Actions out;
  std::vector<RequestId> opened;  // in order, each once
  std::vector<wire::ClientError> errors;
  std::map<std::size_t, int> n_sent;
  std::uint64_t n_ = 0;
};

TEST_F(FairOrderTest, ATargetIsGivenItsPlacesAndNoMore) {
  for (int i = 0; i < 50; ++i) ask("a");
  EXPECT_EQ(kPlaces, opened.size());
  EXPECT_EQ(50u - kPlaces, table.n_waiting());
  finish(opened[0]);
  EXPECT_EQ(kPlaces + 1, opened.size()) << "a place that is free is taken at once";
  table.on_message(kTarget, opened[0], wire::Done{.n_generated = 1}, now, out);
  take();
  EXPECT_EQ(kPlaces + 1, opened.size()) << "the same end again frees nothing";
}

TEST_F(FairOrderTest, TheLastPlacesAreForThoseThatHaveFew) {
  for (int i = 0; i < 200; ++i) ask("many");
  ASSERT_EQ(kPlaces, opened.size());
  const RequestId one = ask("few");
  EXPECT_EQ(one, opened.back()) << "it waits for no end";
  const RequestId two = ask("few"), three = ask("few");
  EXPECT_EQ(two, opened.back());
  EXPECT_EQ(kPlaces + kKept, opened.size());
  const RequestId other = ask("other");
  EXPECT_EQ(kPlaces + kKept, opened.size()) << "all are taken";
  finish(opened[0]);
  finish(opened[1]);
  const auto placed = [&](RequestId id) {
    return std::find(opened.end() - 2, opened.end(), id) != opened.end();
  };
  EXPECT_TRUE(placed(other)) << "its turn is as good as that of the many";
  EXPECT_FALSE(placed(three)) << "two of its own are before it";
}

TEST_F(FairOrderTest, TheNextPlaceIsAnotherTenantsAndThenTheyTakeTurns) {
  for (int i = 0; i < 200; ++i) ask("many");
  take_kept_places();
  const RequestId one = ask("few"), two = ask("few");
  finish(opened[0]);
  EXPECT_EQ(one, opened.back());
  finish(opened[1]);
  EXPECT_NE(two, opened.back());
  finish(opened[2]);
  EXPECT_EQ(two, opened.back());
}

TEST_F(FairOrderTest, WithoutATenantConnectionsTakeTurns) {
  for (int i = 0; i < 40; ++i) ask("");
  take_kept_places();
  const RequestId id{6, 1};
  wire::ClientRequest request;
  request.prompt = "p";
  table.submit({.socket = 2, .routing = "another"}, id, std::move(request), 1, now, out);
  table.on_message(kTokenizer, id, wire::Encoded{.tokens = {1}}, now, out);
  take();
  finish(opened[0]);
  EXPECT_EQ(id, opened.back());
}

TEST_F(FairOrderTest, PlacesFollowTheWeights) {
  for (int i = 0; i < 100; ++i) {
    ask("plain");
    ask("gold");
  }
  const std::size_t before = opened.size();
  std::map<std::uint64_t, int> gold;
  for (std::size_t i = 0; i < 40; ++i) finish(opened[i]);
  int n_gold = 0;
  for (std::size_t i = before; i < opened.size(); ++i) n_gold += opened[i].low % 2 == 0 ? 1 : 0;
  EXPECT_EQ(40u, opened.size() - before);
  EXPECT_NEAR(30, n_gold, 2);
}

TEST_F(FairOrderTest, PriorityIsHeededWithinATenantAndStaysHere) {
  for (int i = 0; i < 20; ++i) ask("a");
  take_kept_places();
  const RequestId usual = ask("b"), urgent = ask("a", 60, 255), first = ask("b", 60, 1);
  finish(opened[0]);
  EXPECT_EQ(first, opened.back()) << "b's turn, and b's most urgent";
  finish(opened[1]);
  EXPECT_EQ(usual, opened.back()) << "an equal turn, and it came before: 255 counts for a alone";
  finish(opened[2]);
  EXPECT_EQ(urgent, opened.back());
}

TEST_F(FairOrderTest, ManyTokensCostMoreTurns) {
  for (int i = 0; i < 60; ++i) ask("small", 60);
  for (int i = 0; i < 10; ++i) ask("large", 636);  // 640 with its prompt: ten of the others'
  const std::size_t before = opened.size();
  for (std::size_t i = 0; i < 33; ++i) finish(opened[i]);
  int n_large = 0;
  for (std::size_t i = before; i < opened.size(); ++i) n_large += opened[i].low > 60 ? 1 : 0;
  EXPECT_NEAR(3, n_large, 1);
}

// Coding agents often set no bound: such a request pays for the most that it can get.
TEST_F(FairOrderTest, MoreThanTheContextHasRoomForCostsNoMoreThanTheContext) {
  for (int i = 0; i < 40; ++i) {
    ask("unbounded", kToEndOfContext);
    ask("bounded", 3996);  // the context of 4000 with its prompt
  }
  ASSERT_TRUE(errors.empty());
  const std::size_t before = opened.size();
  for (std::size_t i = 0; i < 20; ++i) finish(opened[i]);
  ASSERT_EQ(before + 20, opened.size());
  int n_unbounded = 0;
  for (std::size_t i = before; i < opened.size(); ++i)
    n_unbounded += opened[i].low % 2 == 1 ? 1 : 0;
  EXPECT_NEAR(10, n_unbounded, 1);
}

TEST_F(FairOrderTest, AnUnboundedRequestCostsTheContextAlsoWhileNoTargetIsReady) {
  heartbeat(0, true);
  now += seconds(1);  // what comes from here on is not for the target that drains
  for (int i = 0; i < 5; ++i) ask("unbounded", kToEndOfContext);
  for (int i = 0; i < 3; ++i) ask("bounded", 3996);
  ASSERT_TRUE(opened.empty());
  join(kTarget, wire::Role::kTarget, 2);
  table.workers_changed(now, out);
  take();
  ASSERT_EQ(8u, opened.size());
  for (int i = 0; i < 40; ++i) {
    ask("unbounded", 3996);
    ask("bounded", 3996);
  }
  const std::size_t before = opened.size();
  for (std::size_t i = 0; i < 30; ++i) finish(opened[i]);
  ASSERT_EQ(before + 30, opened.size());
  int n_unbounded = 0;
  for (std::size_t i = before; i < opened.size(); ++i)
    n_unbounded += opened[i].low % 2 == 1 ? 1 : 0;
  EXPECT_NEAR(15, n_unbounded, 3);
}

// The target's cache may be full while places are free: then it says so, and newcomers wait here.
TEST_F(FairOrderTest, NothingIsAddedToATargetWhoseQueueIsLong) {
  for (int i = 0; i < 8; ++i) ask("a");
  ASSERT_EQ(8u, opened.size());
  heartbeat(5);
  ask("a");
  ask("b");
  EXPECT_EQ(8u, opened.size());
  for (std::size_t i = 0; i < 3; ++i) start(opened[i]);  // three of the five wait no more
  EXPECT_EQ(10u, opened.size());
}

TEST_F(FairOrderTest, AShortQueueSaidByAHeartbeatIsUsedSoon) {
  for (int i = 0; i < 4; ++i) ask("a");
  heartbeat(9);
  ask("a");
  EXPECT_EQ(4u, opened.size());
  heartbeat(0);
  tick(milliseconds(500));
  EXPECT_EQ(5u, opened.size());
}

TEST_F(FairOrderTest, OneThatWaitsForItsTurnIsNotToldThatNoTargetIsThere) {
  for (int i = 0; i < 30; ++i) ask("a");
  for (int i = 0; i < 60; ++i) {
    tick(seconds(1));
    for (std::size_t j = 0; j < kPlaces; ++j) start(opened[j]);
  }
  EXPECT_TRUE(errors.empty());
  pool.end(kTarget, Incarnation{1});
  table.worker_lost(kTarget, now, out);
  for (int i = 0; i < 16; ++i) tick(seconds(1));
  EXPECT_FALSE(errors.empty());
}

TEST_F(FairOrderTest, WhatIsCancelledWhileItWaitsTakesNoPlace) {
  std::vector<RequestId> all;
  for (int i = 0; i < 30; ++i) all.push_back(ask("a"));
  for (std::size_t i = kPlaces; i < 29; ++i) table.cancel({.socket = 2}, all[i], now, out);
  finish(opened[0]);
  EXPECT_EQ(all[29], opened.back());
  table.client_gone({.socket = 2, .routing = "c"}, now, out);
  EXPECT_EQ(0u, table.size());
  take();
  const std::size_t before = opened.size();
  for (int i = 0; i < 30; ++i) ask("a");
  EXPECT_EQ(before + kPlaces, opened.size()) << "all places are free again";
}

// They had their turn: a fault costs them no second one.
TEST_F(FairOrderTest, RequestsOfATargetThatIsLostGoBeforeThoseThatWait) {
  for (int i = 0; i < 30; ++i) ask("a");
  for (std::size_t i = 0; i < kPlaces; ++i) start(opened[i]);
  opened.clear();
  join(kTarget, wire::Role::kTarget, 2);
  table.worker_lost(kTarget, now, out);
  take();
  ASSERT_EQ(kPlaces, opened.size());
  for (const RequestId id : opened) EXPECT_LE(id.low, kPlaces);
}

TEST_F(FairOrderTest, OneTenantNeverHasTheLastPlacesOfTheTable) {
  for (int i = 0; i < 320; ++i) ask("many");
  EXPECT_EQ(300u, table.size()) << "a sixteenth is left";
  ASSERT_FALSE(errors.empty());
  EXPECT_EQ("queue_full", errors.back().error.code);
  EXPECT_GT(errors.back().error.retry_after_ms, 0u);
  errors.clear();
  for (int i = 0; i < 20; ++i) ask("few");
  EXPECT_TRUE(errors.empty());
  EXPECT_EQ(320u, table.size());
}

// ---- prompts at a tokenizer

class PromptsTest : public FairOrderTest {
 protected:
  RequestId submit(const std::string& tenant = {}) {
    const RequestId id{8, ++n_};
    wire::ClientRequest request;
    request.prompt = "p";
    request.tenant = tenant;
    table.submit({.socket = 2, .routing = "c"}, id, std::move(request), n_, now, out);
    return id;
  }
};

TEST_F(PromptsTest, OneThatWaitsAtATokenizerIsNotAskedForAgainAndAgain) {
  const RequestId id = submit();
  take();
  ASSERT_EQ(1, n_of<wire::Encode>());
  table.on_message(kTokenizer, id, wire::Opened{.n_waiting = 50}, now, out);
  for (int i = 0; i < 16; ++i) tick(seconds(1));
  EXPECT_EQ(1, n_of<wire::Encode>());
  EXPECT_TRUE(errors.empty()) << "it is known to be in a queue";
  tick(seconds(1));
  EXPECT_EQ(2, n_of<wire::Encode>()) << "the answer may have got lost";
}

TEST_F(PromptsTest, ATokenizerThatSaysNothingIsAskedAgainAndToldWhenAnotherHasIt) {
  join(kSecondTokenizer, wire::Role::kTokenizer);
  submit();
  take();
  tick(milliseconds(500));
  EXPECT_EQ(2, n_of<wire::Encode>());
  EXPECT_EQ(1, n_of<wire::StreamClose>());
}

TEST_F(PromptsTest, AFullTokenizerIsAskedWhenItSaidAndTheRequestLives) {
  const RequestId id = submit();
  take();
  for (int i = 0; i < 40; ++i) {
    table.on_message(kTokenizer, id,
                     wire::Busy{.code = ErrorCode::kQueueFull, .retry_after_ms = 700}, now, out);
    tick(milliseconds(699));
    EXPECT_EQ(i + 1, n_of<wire::Encode>());
    tick(milliseconds(1));
    EXPECT_EQ(i + 2, n_of<wire::Encode>());
  }
  EXPECT_TRUE(errors.empty());
}

TEST_F(PromptsTest, ATokenizerHearsThatAPromptIsNotWaitedForAnyMore) {
  const RequestId id = submit();
  table.cancel({.socket = 2, .routing = "c"}, id, now, out);
  take();
  EXPECT_EQ(1, n_of<wire::StreamClose>());
}

TEST_F(PromptsTest, PromptsOfOneTenantAreOfOneFlow) {
  submit("a");
  submit("a");
  submit("b");
  submit();
  std::vector<FlowId> flows;
  for (const Action& action : out)
    if (const auto* to = std::get_if<ToWorker>(&action))
      if (const auto* encode = std::get_if<wire::Encode>(&to->message))
        flows.push_back(encode->flow);
  ASSERT_EQ(4u, flows.size());
  EXPECT_EQ(flows[0], flows[1]);
  EXPECT_NE(flows[0], flows[2]);
  EXPECT_NE(flows[0], flows[3]);
  EXPECT_NE(flows[2], flows[3]);
}

}  // namespace
}  // namespace foretoken
