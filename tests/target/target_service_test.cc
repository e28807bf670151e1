#include "services/target/target_service.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "common/base/log.h"
#include "common/messages/named_proposers.h"
#include "kernels/include/backend.h"
#include "tests/support/scripted_model.h"

namespace foretoken {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr RequestId kId{1, 2};

// The router's end of the wire.
class RouterBus final : public Bus {
 public:
  TimePoint now() const override { return clock.now(); }
  SocketId bind(const std::string&, Door) override { return 1; }
  SocketId connect(const std::string&) override { return ++last_connected; }
  void close(SocketId) override {}
  std::string endpoint(SocketId) const override { return {}; }
  void send(const Peer&, Frames frames, const Posting&) override {
    auto decoded = wire::decode(frames);
    EXPECT_TRUE(decoded.ok());
    sent.push_back(std::move(decoded->message));
  }
  std::optional<Delivery> receive(TimePoint) override {
    if (flood.empty()) return std::nullopt;
    clock.advance(std::chrono::microseconds(1));
    return Delivery{.peer = {.socket = 7, .routing = {}}, .frames = flood};
  }

  template <class M>
  std::vector<M> take() {
    std::vector<M> found;
    std::erase_if(sent, [&](const wire::Message& message) {
      if (!std::holds_alternative<M>(message)) return false;
      found.push_back(std::get<M>(message));
      return true;
    });
    return found;
  }

  ManualClock clock;
  std::vector<wire::Message> sent;
  Frames flood;                 // arrives without end
  SocketId last_connected = 0;  // 1 is the router's
};

class TargetServiceTest : public testing::Test {
 protected:
  explicit TargetServiceTest(const TargetServiceOptions& with = {.router = "ipc://router",
                                                                 .lookup_len = 16})
      : options(with) {}
  void SetUp() override {
    configure_log(LogLevel::kError, LogFormat::kText, "test");
    bus.clock.set(TimePoint{} + seconds(100));
    service.start(bus);
    turn();
    hear(wire::HelloReply{.accepted = true});
    bus.sent.clear();
  }
  void hear(const wire::Message& message, RequestId id = kId, std::uint64_t router = 1) {
    wire::Speaker them(WorkerId{1}, Incarnation{router});
    service.on_message(
        {.peer = {.socket = 1, .routing = {}}, .frames = wire::encode(them, id, message)});
  }
  // Returns the socket of its connection.
  SocketId assign_memory() {
    hear(memory_assigned());
    return bus.last_connected;
  }
  static wire::Assign memory_assigned() {
    return {.draft = WorkerId{5},
            .incarnation = Incarnation{1},
            .name = "draft-memory",
            .endpoint = "ipc://draft-memory",
            .max_sequences = 8,
            .source = wire::DraftSource::kMemory};
  }
  std::string metrics_text() {
    hear(wire::MetricsRequest{});
    return bus.take<wire::MetricsReply>().at(0).text;
  }
  void turn(int n = 1) {
    for (int i = 0; i < n; ++i) {
      service.on_turn(bus.clock.now());
      bus.clock.advance(milliseconds(1));
    }
  }
  wire::Open open(std::uint32_t max_tokens = 8, std::vector<TokenId> resumed = {}) {
    wire::Open open{.tokens = {5, 6, 7}, .n_prompt = 3};
    open.tokens.insert(open.tokens.end(), resumed.begin(), resumed.end());
    open.params.temperature = 0;
    open.params.max_tokens = max_tokens;
    open.params.ignore_eos = true;
    return open;
  }
  std::vector<TokenId> ids_of(const std::vector<wire::Tokens>& list) {
    std::vector<TokenId> ids;
    for (const wire::Tokens& tokens : list)
      ids.insert(ids.end(), tokens.ids.begin(), tokens.ids.end());
    return ids;
  }

  RouterBus bus;
  std::unique_ptr<Backend> backend = make_backend({.n_threads = 1});
  ScriptedModel model{ScriptedOptions{}};
  wire::Speaker speaker{WorkerId{2}, Incarnation{2}};
  DraftProposer drafts{DraftPoolOptions{}, speaker};
  DraftProposer memories{DraftPoolOptions{.kind = ProposerKind::kMemory}, speaker};
  TargetEngine engine{model,
                      *backend,
                      {.each = {&drafts, &memories}, .watch = &drafts},
                      {.kv = {.n_blocks = 64}, .max_running = 2, .max_waiting = 1}};
  Metrics metrics;
  TargetServiceOptions options;
  TargetService service{
      options, {.role = wire::Role::kTarget}, engine, {drafts, &memories}, speaker, metrics};
};

TEST_F(TargetServiceTest, AnOpenedRequestEndsInTokensAndOneDone) {
  hear(open());
  EXPECT_EQ(1u, bus.take<wire::Opened>().size());
  turn(20);
  const auto tokens = bus.take<wire::Tokens>();
  EXPECT_EQ(8u, ids_of(tokens).size());
  EXPECT_EQ(3u, tokens.at(0).position);
  const auto done = bus.take<wire::Done>();
  ASSERT_EQ(1u, done.size());
  EXPECT_EQ(FinishReason::kLength, done[0].reason);
  EXPECT_EQ(8u, done[0].n_generated);
}

TEST_F(TargetServiceTest, KeepsMemoriesApartFromModels) {
  const wire::Assign memory = memory_assigned();
  hear(memory);
  EXPECT_EQ(memories.n_drafts(), 1u);
  EXPECT_EQ(drafts.n_drafts(), 0u);
  wire::Assign other = memory;
  other.draft = WorkerId{6};
  other.source = wire::DraftSource::kModel;
  hear(other);
  EXPECT_EQ(memories.n_drafts(), 1u);
  EXPECT_EQ(drafts.n_drafts(), 1u);
  hear(wire::Unassign{.draft = WorkerId{5}});
  EXPECT_EQ(memories.n_drafts(), 0u);
  EXPECT_EQ(drafts.n_drafts(), 1u);
}

TEST_F(TargetServiceTest, ReportsAMemoryThatIsSetAside) {
  const SocketId memory = assign_memory();
  for (int i = 0; i < 32; ++i)
    service.on_message({.peer = {.socket = memory, .routing = {}}, .frames = {"garbage"}});
  turn();
  bus.clock.advance(milliseconds(300));
  turn();
  const wire::Heartbeat beat = bus.take<wire::Heartbeat>().at(0);
  EXPECT_EQ(32u, beat.dropped_total);
  ASSERT_EQ(1u, beat.set_aside.size());
  EXPECT_EQ(WorkerId{5}, beat.set_aside[0].draft);
  const std::string text = metrics_text();
  EXPECT_NE(text.find("foretoken_drafts_aside 1\n"), text.npos) << text;
  EXPECT_NE(text.find("foretoken_drafts_set_aside_total 1\n"), text.npos) << text;
}

TEST_F(TargetServiceTest, MeasuresTheWayToAMemoryAndBack) {
  const SocketId memory = assign_memory();
  wire::Open request = open(20);
  request.proposer = ProposerKind::kMemory;
  hear(request);
  turn(3);
  const auto asked = bus.take<wire::Propose>();
  ASSERT_FALSE(asked.empty());
  const wire::ProposeRecord& last = asked.back().records.at(0);
  const Position known = last.from + static_cast<Position>(last.tail.size());
  wire::Proposal nothing_found;
  nothing_found.records.push_back({.seq = last.seq,
                                   .lease = last.lease,
                                   .epoch = last.epoch,
                                   .base = known,
                                   .prefix = last.prefix,
                                   .known = known,
                                   .took_us = 200});
  wire::Speaker them(WorkerId{5}, Incarnation{1});
  service.on_message(
      {.peer = {.socket = memory, .routing = {}}, .frames = wire::encode(them, {}, nothing_found)});
  turn();
  const std::string text = metrics_text();
  EXPECT_NE(text.find("round_seconds_sum{phase=\"transport\"} 0.0008\n"), text.npos) << text;
}

// A pass takes a millisecond here.
TEST_F(TargetServiceTest, TokensComeTogetherWhereTheRouterWantsThemSeldom) {
  wire::Open asked = open(23);
  asked.tokens_interval_us = 5'000;
  hear(asked);
  turn(40);
  const auto tokens = bus.take<wire::Tokens>();
  std::vector<std::size_t> sizes;
  Position next = 3;
  for (const wire::Tokens& part : tokens) {
    EXPECT_EQ(next, part.position);
    EXPECT_EQ(part.ids.size(), part.accepted.size());
    next += static_cast<Position>(part.ids.size());
    sizes.push_back(part.ids.size());
  }
  EXPECT_EQ((std::vector<std::size_t>{1, 5, 5, 5, 5, 2}), sizes)
      << "the first and the last at once";
  EXPECT_EQ(1u, bus.take<wire::Done>().size());

  hear(open(23), RequestId{3, 4});
  turn(40);
  EXPECT_EQ(ids_of(bus.take<wire::Tokens>()), ids_of(tokens));
}

TEST_F(TargetServiceTest, AnOpenThatIsRepeatedBringsTheTokensThatWereHeldBack) {
  wire::Open asked = open(30);
  asked.tokens_interval_us = 1'000'000;
  hear(asked);
  turn(10);
  const auto first = bus.take<wire::Tokens>();
  ASSERT_EQ(1u, first.size());
  ASSERT_EQ(1u, first[0].ids.size());
  asked.tokens.push_back(first[0].ids[0]);
  hear(asked);
  const auto held_back = bus.take<wire::Tokens>();
  ASSERT_EQ(1u, held_back.size());
  EXPECT_EQ(4u, held_back[0].position);
  EXPECT_EQ(9u, held_back[0].ids.size());
  turn(40);
  const auto rest = bus.take<wire::Tokens>();
  ASSERT_EQ(1u, rest.size()) << "with the end";
  EXPECT_EQ(13u, rest[0].position) << "no token is sent twice";
  EXPECT_EQ(20u, rest[0].ids.size());
}

TEST_F(TargetServiceTest, NothingThatWasHeldBackComesAfterAClose) {
  wire::Open asked = open(400);
  asked.tokens_interval_us = 5'000;
  hear(asked);
  turn(3);
  bus.take<wire::Tokens>();
  hear(wire::Close{.reason = CloseReason::kCancelled});
  turn(20);
  EXPECT_TRUE(bus.take<wire::Tokens>().empty());
  EXPECT_EQ(1u, bus.take<wire::Done>().size());
}

TEST_F(TargetServiceTest, ATargetThatLeavesSendsWhatItHeldBack) {
  wire::Open asked = open(400);
  asked.tokens_interval_us = 1'000'000;
  hear(asked);
  turn(10);
  bus.take<wire::Tokens>();
  service.drain(bus.now() + milliseconds(505));
  turn(10);
  EXPECT_FALSE(bus.take<wire::Tokens>().empty()) << "half a second before the time is over";
}

// The first ones of the message have their place in the answer, not in what this target chose.
TEST_F(TargetServiceTest, HeldBackTokensOfAResumedAnswerHaveTheirLogProbabilities) {
  wire::Open asked = open(12, {8, 9});
  asked.params.n_logprobs = 2;
  asked.tokens_interval_us = 4'000;
  hear(asked);
  turn(40);
  const auto tokens = bus.take<wire::Tokens>();
  ASSERT_GE(tokens.size(), 3u);
  Position next = 5;
  for (const wire::Tokens& part : tokens) {
    EXPECT_EQ(next, part.position);
    EXPECT_EQ(part.ids.size(), part.logprobs.size());
    next += static_cast<Position>(part.ids.size());
  }
  EXPECT_EQ(15u, next);
}

TEST_F(TargetServiceTest, ADeadlineBringsWhatThereIs) {
  wire::Open asked = open(400);
  asked.tokens_interval_us = 1'000'000;
  asked.deadline_us = 10'000;
  hear(asked);
  turn(20);
  const auto tokens = bus.take<wire::Tokens>();
  const auto done = bus.take<wire::Done>();
  ASSERT_EQ(1u, done.size());
  EXPECT_EQ(FinishReason::kDeadline, done[0].reason);
  EXPECT_EQ(done[0].n_generated, ids_of(tokens).size());
  EXPECT_GT(done[0].n_generated, 5u);
}

TEST_F(TargetServiceTest, DecodingIsFromTheFirstTokenToTheLast) {
  hear(open());
  turn(20);
  EXPECT_EQ(7'000u, bus.take<wire::Done>().at(0).decode_us) << "seven passes, a millisecond apart";
  hear(open(400), RequestId{3, 4});
  turn(5);
  hear(wire::Close{.reason = CloseReason::kCancelled}, RequestId{3, 4});
  turn(2);
  hear(wire::MetricsRequest{});
  const std::string text = bus.take<wire::MetricsReply>().at(0).text;
  EXPECT_NE(text.find("foretoken_request_decode_time_seconds_count 1\n"), text.npos) << text;
  EXPECT_NE(text.find("foretoken_request_decode_time_seconds_sum 0.007\n"), text.npos) << text;
  EXPECT_NE(text.find("foretoken_request_prefill_time_seconds_count 1\n"), text.npos) << text;
  EXPECT_NE(text.find("foretoken_request_time_per_output_token_seconds_sum 0.001\n"), text.npos)
      << text;
}

TEST_F(TargetServiceTest, SaysItsLastPassesInsteadOfMetrics) {
  hear(open());
  turn(20);
  bus.take<wire::MetricsReply>();
  hear(wire::MetricsRequest{.passes = true});
  const auto reply = bus.take<wire::MetricsReply>().at(0);
  EXPECT_EQ("", reply.text);
  const wire::Passes& passes = reply.passes;
  EXPECT_EQ(0u, passes.first);
  EXPECT_GT(passes.now_us, 0u);
  ASSERT_EQ(8u, passes.tokens.size()) << "eight tokens, one a pass";
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(1u, passes.tokens[i]);
    EXPECT_EQ(1u, passes.sequences[i]);
    EXPECT_EQ(0u, passes.drafted[i]);
    if (i == 0) continue;
    EXPECT_EQ(1'000u, passes.ago_us[i - 1] - passes.ago_us[i]) << "a millisecond apart";
  }
  EXPECT_EQ(3u, passes.rows[0]) << "the prompt";
}

TEST_F(TargetServiceTest, ADoneSaysHowManyGuessesARoundWasAllowed) {
  const std::vector<std::pair<std::int32_t, std::int32_t>> asked_and_allowed{
      {-1, 16}, {0, 0}, {3, 3}, {1000, kMaxDraftTokens}};
  std::uint64_t n = 0;
  for (const auto& [asked, allowed] : asked_and_allowed) {
    wire::Open request = open();
    request.draft_len = asked;
    hear(request, RequestId{1, ++n});
    turn(20);
    const auto done = bus.take<wire::Done>();
    ASSERT_EQ(1u, done.size());
    EXPECT_EQ(allowed, done[0].draft_len) << "asked " << asked;
  }
}

// A lookup may say more than a draft, where the length adapts and the request does not say one.
TEST_F(TargetServiceTest, ALookupIsAllowedMoreGuessesThanADraft) {
  struct Case {
    std::vector<ProposerKind> proposers;
    std::int32_t asked;
    bool adaptive;
    std::int32_t allowed;
  };
  const std::vector<Case> cases{{{ProposerKind::kNgram}, -1, true, 16},
                                {{ProposerKind::kDraft, ProposerKind::kMemory}, -1, true, 16},
                                {{ProposerKind::kDraft}, -1, true, 4},
                                {{ProposerKind::kNgram}, -1, false, 4},
                                {{ProposerKind::kNgram}, 6, true, 6},
                                {{ProposerKind::kNgram}, 0, true, 0}};
  std::uint64_t n = 0;
  for (const Case& each : cases) {
    wire::Open request = open();
    request.draft_len = each.asked;
    request.adaptive = each.adaptive;
    ProposerSet set;
    for (const ProposerKind kind : each.proposers) set.add(kind);
    const wire::NamedProposers named = wire::named(set);
    request.proposer = named.first;
    request.proposers = named.bits;
    hear(request, RequestId{1, ++n});
    turn(20);
    const auto done = bus.take<wire::Done>();
    ASSERT_EQ(1u, done.size());
    EXPECT_EQ(each.allowed, done[0].draft_len) << n;
  }
}

class WithoutPredictions : public TargetServiceTest {
 protected:
  WithoutPredictions() : TargetServiceTest({.router = "ipc://router", .allow_prediction = false}) {}
};

TEST_F(WithoutPredictions, ARequestThatNamesThePredictionIsDecodedPlainly) {
  wire::Open request = open();
  request.prediction = {1, 2};
  request.proposer = ProposerKind::kPrediction;
  hear(request);
  turn(20);
  const auto done = bus.take<wire::Done>();
  ASSERT_EQ(1u, done.size());
  EXPECT_EQ("disabled", done[0].fallback_reason);
}

TEST_F(TargetServiceTest, ARepeatedOpenIsAnsweredFromWhereItStands) {
  hear(open());
  turn(20);
  const auto ids = ids_of(bus.take<wire::Tokens>());
  bus.sent.clear();
  hear(open(8, {ids[0], ids[1]}));
  const auto again = bus.take<wire::Tokens>();
  ASSERT_EQ(1u, again.size());
  EXPECT_EQ(5u, again[0].position);
  EXPECT_EQ(std::vector<TokenId>(ids.begin() + 2, ids.end()), again[0].ids);
  EXPECT_EQ(1u, bus.take<wire::Done>().size()) << "the end may have been lost, too";
  EXPECT_EQ(1u, engine.snapshot().n_opened) << "nothing is decoded twice";
}

struct Change {
  const char* what;  // the answer says
  void (*make)(wire::Open&);
};

TEST_F(TargetServiceTest, AnotherRequestUnderAnIdThatIsInUseIsRefused) {
  const Change changes[] = {
      {"another prompt", [](wire::Open& o) { o.tokens[1] = 9; }},
      {"another prompt",
       [](wire::Open& o) { o.tokens.insert(o.tokens.begin(), 9), o.n_prompt = 4; }},
      {"another prompt",
       [](wire::Open& o) { o.tokens.insert(o.tokens.begin() + 3, 9), o.n_prompt = 4; }},
      {"other sampling parameters", [](wire::Open& o) { o.params.seed = 1; }},
      {"other sampling parameters", [](wire::Open& o) { o.params.choice = 1; }},
      {"other sampling parameters", [](wire::Open& o) { o.params.temperature = 1; }},
      {"other sampling parameters", [](wire::Open& o) { o.params.max_tokens = 9; }},
      {"other sampling parameters",
       [](wire::Open& o) {
         o.params.logit_bias = {{5, 1.0f}};
       }},
      {"other sampling parameters", [](wire::Open& o) { o.params.bad_words = {{5}}; }},
      {"other sampling parameters", [](wire::Open& o) { o.params.stop_token_ids = {5}; }},
      {"other sampling parameters", [](wire::Open& o) { o.params.n_logprobs = 0; }},
      {"other end tokens", [](wire::Open& o) { o.end_tokens = {5}; }},
      {"another answer", [](wire::Open& o) { o.tokens.back() ^= 1; }},
  };
  hear(open());
  turn(3);
  const auto first = ids_of(bus.take<wire::Tokens>());
  ASSERT_FALSE(first.empty());
  for (const bool has_ended : {false, true}) {
    for (const Change& change : changes) {
      wire::Open other = open(8, {first[0]});
      change.make(other);
      bus.sent.clear();
      hear(other);
      const auto failed = bus.take<wire::Failed>();
      ASSERT_EQ(1u, failed.size()) << change.what;
      EXPECT_EQ(ErrorCode::kInvalidRequest, failed[0].code);
      EXPECT_NE(failed[0].message.find(change.what), std::string::npos) << failed[0].message;
      EXPECT_TRUE(bus.sent.empty()) << "and nothing of the first one's text";
    }
    turn(20);
    EXPECT_EQ(has_ended ? 0u : 1u, bus.take<wire::Done>().size()) << "the first goes on";
  }
  EXPECT_EQ(1u, engine.snapshot().n_opened);
}

// How soon an answer is wanted and where guesses come from changes no text.
TEST_F(TargetServiceTest, TheSameRequestWithLessTimeLeftIsTheSame) {
  hear(open());
  turn(3);
  const auto first = ids_of(bus.take<wire::Tokens>());
  ASSERT_FALSE(first.empty());
  wire::Open again = open();
  again.deadline_us = 1'000'000;
  again.priority = 1;
  again.flow_weight = 2;
  again.draft_len = 0;
  hear(again);
  EXPECT_TRUE(bus.take<wire::Failed>().empty());
  EXPECT_EQ(first, ids_of(bus.take<wire::Tokens>()));
}

TEST_F(TargetServiceTest, AFloodDoesNotKeepItFromItsSteps) {
  hear(open());
  wire::Speaker stranger{WorkerId{3}, Incarnation{3}};
  bus.flood = wire::encode(stranger, {}, wire::Goodbye{});
  turn(30);  // would not end, or not get anywhere
  EXPECT_EQ(1u, bus.take<wire::Done>().size());
}

TEST_F(TargetServiceTest, AMigratedRequestGoesOnBehindItsTokens) {
  hear(open());
  turn(20);
  const auto ids = ids_of(bus.take<wire::Tokens>());
  bus.sent.clear();
  const std::vector<TokenId> delivered(ids.begin(), ids.begin() + 5);
  hear(open(8, delivered), {3, 3});
  turn(20);
  const auto rest = bus.take<wire::Tokens>();
  EXPECT_EQ(8u, rest.at(0).position) << "three of the prompt, five delivered";
  EXPECT_EQ(std::vector<TokenId>(ids.begin() + 5, ids.end()), ids_of(rest));
  EXPECT_EQ(8u, bus.take<wire::Done>().at(0).n_generated);
}

// Tokens of the prompt among all that was sent, with their positions in order.
std::vector<wire::Tokens> prompts_of(const std::vector<wire::Tokens>& all, Position n_prompt) {
  std::vector<wire::Tokens> prompts;
  for (const wire::Tokens& tokens : all)
    if (tokens.position < n_prompt) prompts.push_back(tokens);
  return prompts;
}

TEST_F(TargetServiceTest, LogProbabilitiesOfAPromptComeBeforeItsAnswerAndInParts) {
  wire::Open asked = open(4);
  asked.tokens.resize(300, 9);
  asked.n_prompt = 300;
  asked.params.n_prompt_logprobs = 1;
  hear(asked);
  turn(20);
  const auto all = bus.take<wire::Tokens>();
  const auto prompts = prompts_of(all, 300);
  Position next = 1;
  for (const wire::Tokens& part : prompts) {
    EXPECT_EQ(next, part.position);
    EXPECT_EQ(part.ids.size(), part.logprobs.size());
    EXPECT_LE(part.ids.size(), 256u);
    next += static_cast<Position>(part.ids.size());
  }
  EXPECT_EQ(300u, next);
  ASSERT_LT(prompts.size(), all.size());
  EXPECT_EQ(prompts.back(), all[prompts.size() - 1]) << "the answer follows";
  EXPECT_EQ(300u, bus.take<wire::Done>().at(0).prompt_logprobs_until);

  asked.prompt_logprobs_from = 20;
  hear(asked);  // those before came, the others were lost
  const auto again = prompts_of(bus.take<wire::Tokens>(), 300);
  ASSERT_EQ(2u, again.size());
  EXPECT_EQ(20u, again[0].position);
  EXPECT_EQ(256u, again[0].ids.size());
  EXPECT_EQ(24u, again[1].ids.size());
  EXPECT_EQ(prompts.back().logprobs.back(), again[1].logprobs.back());
  EXPECT_EQ(1u, engine.snapshot().n_opened) << "nothing is computed twice";
}

TEST_F(TargetServiceTest, AMigratedPromptGoesOnWhereItsLogProbabilitiesEnd) {
  wire::Open asked = open(4);
  asked.tokens.resize(40, 9);
  asked.n_prompt = 40;
  asked.params.n_prompt_logprobs = 0;
  asked.prompt_logprobs_from = 30;
  hear(asked);
  turn(20);
  const auto prompts = prompts_of(bus.take<wire::Tokens>(), 40);
  ASSERT_EQ(1u, prompts.size());
  EXPECT_EQ(30u, prompts[0].position);
  EXPECT_EQ(10u, prompts[0].ids.size());
  EXPECT_EQ(40u, bus.take<wire::Done>().at(0).prompt_logprobs_until);
  asked.prompt_logprobs_from = 29;
  hear(asked);
  turn(20);
  const auto all = prompts_of(bus.take<wire::Tokens>(), 40);
  ASSERT_FALSE(all.empty()) << "it does not have those: it begins anew";
  EXPECT_EQ(29u, all[0].position);
}

// What another target chose before has no log-probabilities here.
TEST_F(TargetServiceTest, AnAnswerWithoutLogProbabilitiesThatAreAskedForBeginsAnew) {
  hear(open(12), RequestId{3, 4});
  turn(20);
  const auto ids = ids_of(bus.take<wire::Tokens>());
  wire::Open asked = open(12, {ids.begin(), ids.begin() + 4});
  asked.params.n_logprobs = 1;
  hear(asked);
  turn(4);
  bus.sent.clear();
  asked.tokens.resize(3);
  hear(asked);
  turn(20);
  const auto tokens = bus.take<wire::Tokens>();
  EXPECT_EQ(ids, ids_of(tokens));
  for (const wire::Tokens& part : tokens) EXPECT_EQ(part.ids.size(), part.logprobs.size());
  EXPECT_EQ(1u, bus.take<wire::Done>().size());
}

TEST_F(TargetServiceTest, AnIdThatComesAgainWhileItIsClosedBeginsAnew) {
  hear(open(40));
  turn(5);
  hear(wire::Close{.reason = CloseReason::kCancelled});
  bus.sent.clear();
  wire::Open other = open(40);
  other.tokens[0] = 4;  // the router sends none such; the new one counts here
  hear(other);
  EXPECT_EQ(1u, bus.take<wire::Opened>().size());
  turn(60);
  EXPECT_EQ(40u, ids_of(bus.take<wire::Tokens>()).size());
  const auto done = bus.take<wire::Done>();
  ASSERT_EQ(1u, done.size()) << "none of the sequence that was closed";
  EXPECT_EQ(FinishReason::kLength, done[0].reason);
}

TEST_F(TargetServiceTest, AFinishedAnswerIsKeptUntilClosedOrForTenSeconds) {
  hear(open());
  turn(20);
  hear(wire::Close{.reason = CloseReason::kFinished});
  bus.sent.clear();
  hear(open());
  EXPECT_EQ(1u, bus.take<wire::Opened>().size()) << "closed: a new sequence";
  turn(20);
  bus.clock.advance(seconds(11));
  turn();
  bus.sent.clear();
  hear(open());
  EXPECT_TRUE(bus.take<wire::Done>().empty()) << "forgotten";
}

TEST_F(TargetServiceTest, CloseEndsARunningSequenceWithItsCounts) {
  hear(open(400));
  turn(5);
  hear(wire::Close{.reason = CloseReason::kStop});
  turn(2);
  EXPECT_EQ(1u, bus.take<wire::Done>().size());
  EXPECT_EQ(0u, engine.snapshot().n_running);
}

TEST_F(TargetServiceTest, TheCountsOfAnAnswerThatAStopStringEndsNeedNoFurtherPass) {
  hear(open(400));
  hear(open(400), RequestId{3, 4});
  turn(5);
  const std::uint64_t n_steps = engine.snapshot().n_steps;
  bus.sent.clear();
  hear(wire::Close{.reason = CloseReason::kStop});
  const auto done = bus.take<wire::Done>();
  ASSERT_EQ(1u, done.size());
  EXPECT_EQ(FinishReason::kStop, done[0].reason);
  EXPECT_EQ(5u, done[0].n_generated);
  EXPECT_EQ(n_steps, engine.snapshot().n_steps);
  turn(2);
  EXPECT_TRUE(bus.take<wire::Done>().empty()) << "once";
  EXPECT_FALSE(bus.take<wire::Tokens>().empty()) << "the other goes on";
}

// All of a long answer with log probabilities is more than one message takes.
TEST_F(TargetServiceTest, ALongAnswerIsRepeatedInParts) {
  wire::Open asked = open(300);
  asked.params.n_logprobs = 2;
  hear(asked);
  turn(400);
  const auto ids = ids_of(bus.take<wire::Tokens>());
  ASSERT_EQ(300u, ids.size());
  hear(asked);  // where does it stand? from the prompt on
  const auto again = bus.take<wire::Tokens>();
  EXPECT_EQ(2u, again.size());
  EXPECT_EQ(ids, ids_of(again));
  std::size_t at = 3;
  for (const wire::Tokens& tokens : again) {
    EXPECT_EQ(tokens.position, at);
    EXPECT_LE(tokens.ids.size(), 256u);
    EXPECT_EQ(tokens.accepted.size(), tokens.ids.size());
    EXPECT_EQ(tokens.logprobs.size(), tokens.ids.size());
    at += tokens.ids.size();
  }
  EXPECT_EQ(at, 3u + 300u);
}

TEST_F(TargetServiceTest, WithoutRoomItSaysBusyAndKeepsNothing) {
  for (std::uint64_t i = 0; i < 4; ++i) hear(open(400), {9, i});
  EXPECT_EQ(3u, bus.take<wire::Opened>().size());
  const auto busy = bus.take<wire::Busy>();
  ASSERT_EQ(1u, busy.size());
  EXPECT_EQ(ErrorCode::kQueueFull, busy[0].code);
}

TEST_F(TargetServiceTest, WhatCanNeverWorkFails) {
  auto bad = open();
  bad.tokens = {1000};
  bad.n_prompt = 1;
  hear(bad);
  bad.n_prompt = 7;
  hear(bad, {4, 4});
  EXPECT_EQ(2u, bus.take<wire::Failed>().size());
}

TEST_F(TargetServiceTest, ANewRouterWantsNothingOfTheOldOnes) {
  hear(open(400));
  turn(3);
  hear(wire::HelloReply{.accepted = true}, {}, 2);
  turn(3);
  EXPECT_EQ(0u, engine.snapshot().n_running);
  bus.sent.clear();
  turn(3);
  EXPECT_TRUE(bus.take<wire::Tokens>().empty());
}

TEST_F(TargetServiceTest, ADrainFinishesWhatTheRouterAcceptedAndWaitsUntilItHasIt) {
  hear(open());
  turn();
  service.drain(bus.now() + seconds(30));
  EXPECT_TRUE(bus.take<wire::Heartbeat>().at(0).draining) << "said at once";
  hear(open(), {5, 5});  // accepted before, not placed yet: the router closes the door, not we
  EXPECT_TRUE(bus.take<wire::Busy>().empty());
  turn(30);
  EXPECT_EQ(2u, bus.take<wire::Done>().size());
  hear(wire::HeartbeatReply{.known = true, .needed = false}, {});
  turn();
  EXPECT_FALSE(service.drained());
  hear(wire::Close{.reason = CloseReason::kFinished});
  hear(wire::Close{.reason = CloseReason::kFinished}, {5, 5});
  turn();
  EXPECT_TRUE(service.drained());
  EXPECT_EQ(1u, bus.take<wire::Goodbye>().size());
  hear(open(), {6, 6});
  EXPECT_EQ(ErrorCode::kDraining, bus.take<wire::Busy>().at(0).code) << "after the goodbye";
}

TEST_F(TargetServiceTest, ADrainWaitsIdleForWhatTheRouterHasNotPlacedYet) {
  service.drain(bus.now() + seconds(30));
  for (int i = 0; i < 10; ++i) {
    hear(wire::HeartbeatReply{.known = true, .needed = true}, {});
    bus.clock.advance(seconds(1));
    turn();
    ASSERT_FALSE(service.drained());
  }
  hear(wire::HeartbeatReply{.known = true, .needed = false}, {});
  turn();
  EXPECT_TRUE(service.drained());
}

TEST_F(TargetServiceTest, ADrainGoesOnWithoutWordsOfTheRouterAndEndsWithItsGoodbye) {
  hear(open(400));
  turn();
  service.drain(bus.now() + seconds(30));
  bus.clock.advance(seconds(10));  // starved, or a long step: what runs is not dropped
  turn(3);
  EXPECT_EQ(1u, engine.snapshot().n_running);
  EXPECT_FALSE(service.drained());
  hear(wire::Goodbye{}, {});
  turn();
  EXPECT_EQ(0u, engine.snapshot().n_running);
  EXPECT_TRUE(service.drained());
}

TEST_F(TargetServiceTest, ADrainThatTakesTooLongSaysGoodbyeInTime) {
  hear(open(400));
  turn();
  service.drain(bus.now() + seconds(1));
  bus.clock.advance(milliseconds(600));
  turn();
  EXPECT_EQ(1u, bus.take<wire::Goodbye>().size()) << "so that the request moves";
}

TEST_F(TargetServiceTest, AForgetfulRouterHearsHelloAgain) {
  hear(wire::HeartbeatReply{.known = false});
  turn();
  EXPECT_EQ(1u, bus.take<wire::Hello>().size());
}

TEST_F(TargetServiceTest, GarbageIsCountedNotAnswered) {
  service.on_message({.peer = {.socket = 1, .routing = {}}, .frames = {"garbage"}});
  hear(wire::Text{});
  turn();
  EXPECT_TRUE(bus.sent.empty());
  bus.clock.advance(milliseconds(300));
  turn();
  EXPECT_EQ(2u, bus.take<wire::Heartbeat>().at(0).dropped_total);
}

}  // namespace
}  // namespace foretoken
