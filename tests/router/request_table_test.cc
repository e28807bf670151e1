#include "services/router/request_table.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <vector>

#include "common/wire/client_codec.h"
#include "services/router/router_service.h"

namespace foretoken {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr WorkerId kTokenizer{1}, kTarget{2}, kOther{3};
constexpr RequestId kId{0, 77};

// A table with one tokenizer and one target; the test plays the workers and the client.
class RequestTableTest : public testing::Test {
 protected:
  void SetUp() override {
    join(kTokenizer, wire::Role::kTokenizer, "tokenizer-0");
    join(kTarget, wire::Role::kTarget, "target-0");
    rules.max_requests = 4;
  }
  void join(WorkerId id,
            wire::Role role,
            const std::string& name,
            std::uint64_t incarnation = 1,
            Fingerprint numerics = 4,
            const SamplingDefaults& sampling = {},
            std::uint32_t max_model_len = 100,
            std::uint8_t minor = wire::kVersionMinor) {
    wire::Header header;
    header.minor = minor;
    header.sender = id;
    header.incarnation = Incarnation{incarnation};
    wire::Hello hello{.role = role,
                      .name = name,
                      .fingerprints = {1, 2, 3, numerics},
                      .model_name = "m",
                      .vocab_size = 1000,
                      .end_tokens = {0},
                      .max_model_len = max_model_len,
                      .max_sequences = 8,
                      .sampling = sampling};
    if (role == wire::Role::kTokenizer) hello.fingerprints = {1, 2, 0, 0};
    pool.hello(header, {.socket = 1, .routing = name}, hello, now);
  }
  static Peer client(const std::string& name = "c") { return {.socket = 2, .routing = name}; }
  static wire::ClientRequest ask(std::uint32_t max_tokens = 3) {
    wire::ClientRequest request;
    request.prompt = "hello";
    request.params.max_tokens = max_tokens;
    request.given.insert("max_tokens");
    return request;
  }
  void submit(wire::ClientRequest request = ask(),
              RequestId id = kId,
              const Peer& peer = client(),
              std::uint64_t content = 5) {
    table.submit(peer, id, std::move(request), content, now, out);
  }
  void hear(WorkerId from, wire::Message message, RequestId id = kId) {
    table.on_message(from, id, std::move(message), now, out);
  }
  void advance(Duration by) {
    now += by;
    table.tick(now, out);
  }
  // Of a router that runs: it turns often enough.
  void listen(Duration time) {
    for (const TimePoint end = now + time; now < end;) {
      now += std::min<Duration>(milliseconds(250), end - now);
      pool.count_silence(now);
    }
  }
  // Messages of a type among the actions, which are then forgotten.
  template <class M>
  std::vector<std::pair<WorkerId, M>> sent() {
    std::vector<std::pair<WorkerId, M>> found;
    std::erase_if(out, [&](const Action& action) {
      const auto* to = std::get_if<ToWorker>(&action);
      if (to == nullptr || !std::holds_alternative<M>(to->message)) return false;
      found.emplace_back(to->worker, std::get<M>(to->message));
      return true;
    });
    return found;
  }
  template <class A>
  std::vector<A> answers() {
    std::vector<A> found;
    std::erase_if(out, [&](const Action& action) {
      const auto* to = std::get_if<ToClient>(&action);
      if (to == nullptr || !std::holds_alternative<A>(to->answer)) return false;
      found.push_back(std::get<A>(to->answer));
      return true;
    });
    return found;
  }
  static wire::ClientRequest streamed() {
    auto request = ask();
    request.stream = true;
    return request;
  }
  // Up to the point where the target has the request.
  void run_to_target(wire::ClientRequest request = ask()) {
    submit(std::move(request));
    hear(kTokenizer, wire::Encoded{.tokens = {10, 11, 12}});
    hear(kTarget, wire::Opened{});
    out.clear();
  }
  void tokens(Position position, std::vector<TokenId> ids, WorkerId from = kTarget) {
    hear(from, wire::Tokens{.position = position, .ids = std::move(ids)});
  }
  void drains(WorkerId id) {
    Worker& worker = *pool.find(id);
    worker.state = wire::WorkerState::kDraining;
    worker.draining_since = now;
  }
  bool needs(WorkerId id) { return table.needs(*pool.find(id)); }
  void text(Position next, std::string bytes, std::uint32_t offset, bool final = false) {
    hear(kTokenizer,
         wire::Text{.next = next, .text = std::move(bytes), .final = final, .offset = offset});
  }

  TimePoint now = TimePoint{} + seconds(1000);
  Pool pool{std::chrono::milliseconds(250)};
  RequestRules rules;
  RequestTable table{RequestRules{.max_requests = 4}, pool};
  Actions out;
};

// The id was asked again after its deadline, and what the tokenizer said of the first run comes
// late.
TEST_F(RequestTableTest, AStreamThatATokenizerLacksIsNoAnswerToAnEncode) {
  submit();
  hear(kTokenizer, wire::Failed{.code = ErrorCode::kNotFound, .message = "no such stream"});
  EXPECT_TRUE(answers<wire::ClientError>().empty());
  hear(kTokenizer, wire::Failed{.code = ErrorCode::kInvalidValue, .message = "not a token"});
  const auto errors = answers<wire::ClientError>();
  ASSERT_EQ(1u, errors.size());
  EXPECT_EQ("invalid_value", errors[0].error.code);
}

TEST_F(RequestTableTest, TheTokenizerIsToldWhatAStopStringMustWaitFor) {
  auto request = ask();
  request.params.min_tokens = 3;
  request.stop = {"b"};
  submit(std::move(request));
  hear(kTokenizer, wire::Encoded{.tokens = {10, 11, 12}});
  hear(kTarget, wire::Opened{});
  tokens(3, {20, 21});
  const auto opened = sent<wire::StreamOpen>();
  ASSERT_EQ(1u, opened.size());
  EXPECT_EQ(3u, opened[0].second.min_tokens);
  EXPECT_EQ(3u, opened[0].second.position);
  EXPECT_EQ(std::vector<std::string>{"b"}, opened[0].second.stop);
}

TEST_F(RequestTableTest, AStreamBeginsWithTheIdsThatEndTheAnswer) {
  struct Case {
    std::vector<TokenId> stop_token_ids;
    bool ignore_eos;
    std::vector<TokenId> end_tokens;
  };
  std::uint64_t number = 100;
  for (const auto& [stop_token_ids, ignore_eos, end_tokens] :
       {Case{{}, false, {0}}, Case{{9, 5}, false, {0, 5, 9}}, Case{{9}, true, {9}},
        Case{{}, true, {}}}) {
    auto request = ask();
    request.params.stop_token_ids = stop_token_ids;
    request.params.ignore_eos = ignore_eos;
    const RequestId id{0, number++};
    submit(std::move(request), id);
    hear(kTokenizer, wire::Encoded{.tokens = {10, 11, 12}}, id);
    hear(kTarget, wire::Opened{}, id);
    hear(kTarget, wire::Tokens{.position = 3, .ids = {20}}, id);
    advance(seconds(1));  // its answer was lost: the stream is replayed
    const auto opened = sent<wire::StreamOpen>();
    ASSERT_EQ(2u, opened.size());
    for (const auto& [to, open] : opened) EXPECT_EQ(end_tokens, open.end_tokens);
    table.cancel(client(), id, now, out);
  }
}

TEST_F(RequestTableTest, AStreamContinuesWhatIsTextAndWhereverAConstraintIsGiven) {
  using enum wire::PromptKind;
  struct Case {
    wire::PromptKind kind;
    std::string prompt;
    bool continue_final_message;
    std::string regex;
    bool continues;
  };
  std::uint64_t number = 100;
  for (const auto& [kind, prompt, continue_final_message, regex, continues] :
       {Case{kText, "hello", false, "", true}, Case{kText, "", false, "", false},
        Case{kText, "", false, "a", true}, Case{kTokens, "", false, "", true},
        Case{kMessages, "", false, "", false}, Case{kMessages, "", true, "", true},
        Case{kMessages, "", false, "a", true}}) {
    auto request = ask();
    request.prompt_kind = kind;
    request.prompt = prompt;
    request.continue_final_message = continue_final_message;
    request.params.regex = regex;
    const RequestId id{0, number++};
    submit(std::move(request), id);
    hear(kTokenizer, wire::Encoded{.tokens = {10, 11, 12}}, id);
    hear(kTarget, wire::Opened{}, id);
    hear(kTarget, wire::Tokens{.position = 3, .ids = {20}}, id);
    const auto opened = sent<wire::StreamOpen>();
    ASSERT_EQ(1u, opened.size());
    EXPECT_EQ(continues, opened[0].second.continues) << number;
    table.cancel(client(), id, now, out);
  }
}

class AskedForThePrompt : public RequestTableTest {
 protected:
  static wire::ClientRequest ask_for_prompt(std::int32_t n_likeliest = 0) {
    auto request = ask();
    request.params.n_prompt_logprobs = n_likeliest;
    return request;
  }
  void prompt(Position position, std::vector<TokenId> ids) {
    wire::Tokens tokens{.position = position, .ids = std::move(ids)};
    tokens.logprobs.assign(tokens.ids.size(), {.logprob = -1});
    hear(kTarget, std::move(tokens));
  }
  Position asked_from() {
    const auto opens = sent<wire::Open>();
    EXPECT_EQ(1u, opens.size());
    return opens.empty() ? 0 : opens[0].second.prompt_logprobs_from;
  }
};

TEST_F(AskedForThePrompt, WhatIsLostOfItIsAskedForFromWhereItEnds) {
  submit(ask_for_prompt());
  hear(kTokenizer, wire::Encoded{.tokens = {10, 11, 12}});
  EXPECT_EQ(1u, asked_from());
  prompt(1, {11});
  tokens(3, {20});  // what was between them is lost
  EXPECT_TRUE(sent<wire::Decode>().empty());
  advance(seconds(1));
  EXPECT_EQ(2u, asked_from());
  prompt(2, {12});
  tokens(3, {20});
  EXPECT_EQ(1u, sent<wire::Decode>().size());
  join(kTarget, wire::Role::kTarget, "target-0", 2);
  table.worker_lost(kTarget, now, out);
  EXPECT_EQ(3u, asked_from()) << "another target computes none of it again";
}

TEST_F(AskedForThePrompt, DoneWithoutAllOfItIsNoEnd) {
  run_to_target(ask_for_prompt());
  hear(kTarget, wire::Done{.reason = FinishReason::kLength, .prompt_logprobs_until = 3});
  EXPECT_TRUE(answers<wire::ClientReply>().empty());
  advance(seconds(1));
  EXPECT_EQ(1u, asked_from());
  prompt(1, {11, 12});
  hear(kTarget, wire::Done{.reason = FinishReason::kLength, .prompt_logprobs_until = 3});
  const auto decodes = sent<wire::Decode>();
  ASSERT_EQ(1u, decodes.size());
  EXPECT_TRUE(decodes[0].second.final);
  text(3, "", 0, true);
  const auto replies = answers<wire::ClientReply>();
  ASSERT_EQ(1u, replies.size());
  EXPECT_EQ(3u, replies[0].prompt_logprobs.size());
}

TEST_F(AskedForThePrompt, ATargetThatDoesNotKnowItFailsTheRequest) {
  run_to_target(ask_for_prompt());
  hear(kTarget, wire::Done{.reason = FinishReason::kLength});
  const auto errors = answers<wire::ClientError>();
  ASSERT_EQ(1u, errors.size());
  EXPECT_EQ("unsupported_parameter", errors[0].error.code);
  EXPECT_EQ("prompt_logprobs", errors[0].error.param);
}

TEST_F(AskedForThePrompt, OneThatIsTooLongIsRefusedWithItsLimit) {
  join(kTarget, wire::Role::kTarget, "target-0", 2, 4, {}, 20'000);
  submit(ask_for_prompt(20));
  hear(kTokenizer, wire::Encoded{.tokens = std::vector<TokenId>(5462, 10)});
  const auto errors = answers<wire::ClientError>();
  ASSERT_EQ(1u, errors.size());
  EXPECT_EQ("prompt_logprobs", errors[0].error.param);
  EXPECT_NE(
      errors[0].error.message.find("5462 tokens; the limit with prompt_logprobs = 20 is 5461"),
      std::string::npos)
      << errors[0].error.message;
}

class ModelThatSaysHow : public RequestTableTest {
 protected:
  void SetUp() override {
    join(kTokenizer, wire::Role::kTokenizer, "tokenizer-0");
    join(kTarget, wire::Role::kTarget, "target-0", 1, 4,
         {.temperature = 0.5f,
          .top_k = 20,
          .top_p = 0.75f,
          .min_p = 0.25f,
          .repetition_penalty = 1.5f});
  }
  SamplingParams opened_with(wire::ClientRequest request) {
    submit(std::move(request));
    hear(kTokenizer, wire::Encoded{.tokens = {10, 11, 12}});
    const auto opens = sent<wire::Open>();
    EXPECT_EQ(1u, opens.size());
    return opens.empty() ? SamplingParams{} : opens[0].second.params;
  }
};

TEST_F(ModelThatSaysHow, DecidesWhatTheRequestLeftOpen) {
  const SamplingParams params = opened_with(ask());
  EXPECT_EQ(0.5f, params.temperature);
  EXPECT_EQ(20u, params.top_k);
  EXPECT_EQ(0.75f, params.top_p);
  EXPECT_EQ(0.25f, params.min_p);
  EXPECT_EQ(1.5f, params.repetition_penalty);
}

TEST_F(ModelThatSaysHow, LeavesWhatTheRequestSaidEvenIfThatIsTheUsual) {
  wire::ClientRequest request = ask();
  const SamplingParams usual;
  request.given = {"temperature", "top_k", "top_p", "min_p", "repetition_penalty"};
  const SamplingParams params = opened_with(std::move(request));
  EXPECT_EQ(usual.temperature, params.temperature);
  EXPECT_EQ(usual.top_k, params.top_k);
  EXPECT_EQ(usual.top_p, params.top_p);
  EXPECT_EQ(usual.min_p, params.min_p);
  EXPECT_EQ(usual.repetition_penalty, params.repetition_penalty);
}

TEST_F(ModelThatSaysHow, TheTargetThatBeginsDecidesAndNotOneThatWasLookedAtBefore) {
  auto request = ask();
  request.given = {};
  request.params.min_tokens = 120;
  submit(request);
  pool.find(kTarget)->load.queued = 100;
  hear(kTokenizer, wire::Encoded{.tokens = {10, 11, 12}});  // it would fit, and waits for a place
  EXPECT_TRUE(sent<wire::Open>().empty());
  join(kTarget, wire::Role::kTarget, "target-0", 2, 4, {.temperature = 0.875f}, 203);
  table.worker_lost(kTarget, now, out);
  table.workers_changed(now, out);
  const auto opens = sent<wire::Open>();
  ASSERT_EQ(1u, opens.size());
  EXPECT_EQ(0.875f, opens[0].second.params.temperature);
  EXPECT_EQ(0u, opens[0].second.params.top_k);
  EXPECT_EQ(128u, opens[0].second.params.max_tokens);
  EXPECT_EQ(120u, opens[0].second.params.min_tokens) << "not what fitted the life before";
}

TEST_F(ModelThatSaysHow, AnotherTargetGoesOnAsTheFirstBegan) {
  const SamplingParams before = opened_with(ask());
  EXPECT_EQ(0.5f, before.temperature);
  join(kTarget, wire::Role::kTarget, "target-0", 2, 4, {.temperature = 0.875f});
  table.worker_lost(kTarget, now, out);
  const auto again = sent<wire::Open>();
  ASSERT_FALSE(again.empty());
  EXPECT_EQ(kTarget, again.back().first) << "a new life, whose generation_config was edited";
  EXPECT_EQ(before, again.back().second.params);
}

TEST_F(RequestTableTest, ARequestGoesFromMapToReply) {
  submit();
  ASSERT_EQ(1u, sent<wire::Encode>().size());
  hear(kTokenizer, wire::Encoded{.tokens = {10, 11, 12}});
  const auto opens = sent<wire::Open>();
  ASSERT_EQ(1u, opens.size());
  EXPECT_EQ(kTarget, opens[0].first);
  EXPECT_EQ((std::vector<TokenId>{10, 11, 12}), opens[0].second.tokens);
  hear(kTarget, wire::Opened{});
  tokens(3, {20, 21});
  EXPECT_EQ(1u, sent<wire::StreamOpen>().size());
  const auto decodes = sent<wire::Decode>();
  ASSERT_EQ(1u, decodes.size());
  EXPECT_EQ(3u, decodes[0].second.position);
  text(5, "ab", 0);
  tokens(5, {22});
  hear(kTarget, wire::Done{.reason = FinishReason::kLength, .n_generated = 3});
  EXPECT_EQ(1u, sent<wire::Close>().size()) << "the target may forget it";
  text(6, "c", 2);
  EXPECT_TRUE(answers<wire::ClientReply>().empty()) << "the last text is not here";
  text(6, "d", 3, true);
  const auto replies = answers<wire::ClientReply>();
  ASSERT_EQ(1u, replies.size());
  EXPECT_EQ("abcd", replies[0].text);
  EXPECT_EQ((std::vector<TokenId>{20, 21, 22}), replies[0].token_ids);
  EXPECT_EQ("length", replies[0].finish_reason);
  EXPECT_EQ(3u, replies[0].usage.completion_tokens);
  EXPECT_EQ(0u, table.size());
}

TEST_F(RequestTableTest, WhatARequestTookIsCountedForItsModel) {
  submit(streamed());
  now += milliseconds(100);
  hear(kTokenizer, wire::Encoded{.tokens = {10, 11, 12}});
  hear(kTarget, wire::Opened{});
  now += milliseconds(50);
  tokens(3, {20});
  now += milliseconds(20);
  tokens(4, {21, 22});
  tokens(3, {20, 21});  // said again
  hear(kTarget, wire::Done{.reason = FinishReason::kLength, .n_generated = 3, .queue_us = 30'000});
  now += milliseconds(10);
  text(6, "abc", 0, true);
  ASSERT_EQ(1u, answers<wire::ClientReply>().size());
  ASSERT_EQ(1u, table.tallies().size());
  const ModelTally& tally = table.tallies().at("m");
  EXPECT_EQ(1u, tally.first_token.count());
  EXPECT_DOUBLE_EQ(0.150, tally.first_token.sum());
  EXPECT_EQ(1u, tally.inter_token.count()) << "two tokens that came together are one arrival";
  EXPECT_DOUBLE_EQ(0.020, tally.inter_token.sum());
  EXPECT_DOUBLE_EQ(0.180, tally.whole_answer.sum());
  EXPECT_DOUBLE_EQ(0.030, tally.queueing.sum());
  EXPECT_DOUBLE_EQ(3, tally.prompt_tokens.sum());
  EXPECT_DOUBLE_EQ(3, tally.answer_tokens.sum());
  EXPECT_EQ((std::array<std::uint64_t, 4>{0, 1, 0, 0}), tally.n_ended);
}

TEST_F(RequestTableTest, TokensOfAnAnswerThatIsNotStreamedAreWantedSeldom) {
  const auto interval_us = [&](wire::ClientRequest request, std::uint64_t id) {
    submit(std::move(request), RequestId{7, id});
    hear(kTokenizer, wire::Encoded{.tokens = {10, 11, 12}}, RequestId{7, id});
    const auto opens = sent<wire::Open>();
    EXPECT_EQ(1u, opens.size());
    return opens.empty() ? 1u : opens[0].second.tokens_interval_us;
  };
  EXPECT_EQ(50'000u, interval_us(ask(), 1));
  EXPECT_EQ(0u, interval_us(streamed(), 2));
  auto with_stop = ask();
  with_stop.stop = {"b"};
  EXPECT_EQ(0u, interval_us(with_stop, 3)) << "what follows a stop string is decoded in vain";
}

TEST_F(RequestTableTest, ATargetThatIsLateWithoutATokenLeavesAnError) {
  auto request = ask();
  request.timeout_ms = 300;
  run_to_target(request);
  now += milliseconds(300);
  hear(kTarget, wire::Done{.reason = FinishReason::kDeadline});
  const auto errors = answers<wire::ClientError>();
  ASSERT_EQ(1u, errors.size());
  EXPECT_EQ("deadline_exceeded", errors[0].error.code);
  EXPECT_EQ(0u, table.size());
}

TEST_F(RequestTableTest, GapsAreCountedOfStreamsAlone) {
  run_to_target();
  tokens(3, {20});
  now += milliseconds(50);
  tokens(4, {21, 22});
  EXPECT_EQ(0u, table.tallies().at("m").inter_token.count());
  EXPECT_EQ(1u, table.tallies().at("m").first_token.count());
}

TEST_F(RequestTableTest, WaitingForAPlaceIsQueueingTimeInTheReplyToo) {
  pool.find(kTarget)->load.queued = 100;
  submit();
  now += milliseconds(7);
  hear(kTokenizer, wire::Encoded{.tokens = {10, 11, 12}});
  EXPECT_TRUE(sent<wire::Open>().empty()) << "its queue is long enough";
  now += milliseconds(40);
  pool.find(kTarget)->load.queued = 0;
  table.workers_changed(now, out);
  ASSERT_EQ(1u, sent<wire::Open>().size());
  now += milliseconds(5);
  tokens(3, {20});
  hear(kTarget, wire::Done{.reason = FinishReason::kStop, .n_generated = 1, .queue_us = 2'000});
  text(4, "a", 0, true);
  const auto replies = answers<wire::ClientReply>();
  ASSERT_EQ(1u, replies.size());
  EXPECT_DOUBLE_EQ(42, replies[0].metrics.queue_time_ms);
  EXPECT_DOUBLE_EQ(7, replies[0].metrics.tokenize_time_ms);
  EXPECT_DOUBLE_EQ(7 + 40 + 5, replies[0].metrics.time_to_first_token_ms);
  EXPECT_DOUBLE_EQ(0.042, table.tallies().at("m").queueing.sum());
}

TEST_F(RequestTableTest, OfACancelledRequestOnlyTheFirstTokenIsTimed) {
  run_to_target();
  tokens(3, {20});
  table.cancel(client(), kId, now, out);
  const ModelTally& tally = table.tallies().at("m");
  EXPECT_EQ(1u, tally.first_token.count());
  EXPECT_EQ(0u, tally.whole_answer.count());
  EXPECT_EQ(1u, tally.n_ended[static_cast<std::size_t>(FinishReason::kCancelled)]);
}

TEST_F(RequestTableTest, RepeatedAndOvertakenTokensAddNothing) {
  run_to_target();
  tokens(3, {20, 21});
  tokens(3, {20, 21});
  tokens(4, {21, 22});
  std::vector<TokenId> decoded;
  for (const auto& [to, decode] : sent<wire::Decode>())
    decoded.insert(decoded.end(), decode.ids.begin(), decode.ids.end());
  EXPECT_EQ((std::vector<TokenId>{20, 21, 22}), decoded);
}

TEST_F(RequestTableTest, AGapIsAskedForFromWhereItBegins) {
  run_to_target();
  tokens(3, {20});
  tokens(5, {22});
  tokens(6, {23});
  advance(milliseconds(40));
  const auto opens = sent<wire::Open>();
  ASSERT_EQ(1u, opens.size()) << "once, however many frames lie behind the gap";
  EXPECT_EQ((std::vector<TokenId>{10, 11, 12, 20}), opens[0].second.tokens);
  EXPECT_EQ(3u, opens[0].second.n_prompt);
}

TEST_F(RequestTableTest, SilenceIsAskedAboutMoreAndMoreRarely) {
  run_to_target();
  int asked = 0;
  for (int i = 0; i < 100; ++i) {
    advance(milliseconds(100));
    asked += static_cast<int>(sent<wire::Open>().size());
  }
  EXPECT_GE(asked, 3);
  EXPECT_LE(asked, 5) << "0.5, 1, 2 and 4 seconds apart";
}

TEST_F(RequestTableTest, ALostEncodeIsAskedAgain) {
  submit();
  out.clear();
  advance(milliseconds(1001));
  EXPECT_EQ(1u, sent<wire::Encode>().size());
}

TEST_F(RequestTableTest, APromptThatWaitsMovesOnceToATokenizerThatHasNothingToEncode) {
  constexpr RequestId kNext{0, 78};
  submit();
  submit(ask(), kNext);
  EXPECT_EQ(2u, sent<wire::Encode>().size());
  for (const RequestId id : {kId, kNext}) hear(kTokenizer, wire::Opened{.n_waiting = 40}, id);
  join(kOther, wire::Role::kTokenizer, "tokenizer-1");
  pool.find(kOther)->load.queued = 1;
  advance(seconds(4));
  EXPECT_TRUE(sent<wire::Encode>().empty()) << "the other has one, too";
  pool.find(kOther)->load.queued = 0;
  advance(milliseconds(500));
  const auto moved = sent<wire::Encode>();
  ASSERT_EQ(1u, moved.size()) << "one: then it is idle no more";
  EXPECT_EQ(kOther, moved[0].first);
  const auto closed = sent<wire::StreamClose>();
  ASSERT_EQ(1u, closed.size());
  EXPECT_EQ(kTokenizer, closed[0].first);
  hear(kTokenizer, wire::Encoded{.tokens = {10}}, kNext);
  EXPECT_EQ(1u, sent<wire::Open>().size());
  hear(kOther, wire::Opened{.n_waiting = 40});
  for (int i = 0; i < 20; ++i) advance(milliseconds(500));
  EXPECT_TRUE(sent<wire::Encode>().empty()) << "it does not go to and fro";
  out.clear();
  hear(kOther, wire::Encoded{.tokens = {10, 11}});
  const auto opens = sent<wire::Open>();
  ASSERT_EQ(1u, opens.size());
  EXPECT_EQ((std::vector<TokenId>{10, 11}), opens[0].second.tokens);
}

TEST_F(RequestTableTest, APromptThatIsEncodedInTimeIsEncodedOnce) {
  join(kOther, wire::Role::kTokenizer, "tokenizer-1");
  submit();
  hear(kTokenizer, wire::Opened{.n_waiting = 2});
  advance(milliseconds(3999));
  hear(kTokenizer, wire::Encoded{.tokens = {10}});
  advance(seconds(1));
  EXPECT_EQ(1u, sent<wire::Encode>().size());
}

TEST_F(RequestTableTest, ALostTargetsRequestGoesOnAtAnEqualOneWithWhatWasDelivered) {
  run_to_target();
  join(kOther, wire::Role::kTarget, "target-1");
  tokens(3, {20, 21});
  pool.lose(kTarget);
  out.clear();
  table.worker_lost(kTarget, now, out);
  const auto opens = sent<wire::Open>();
  ASSERT_EQ(1u, opens.size());
  EXPECT_EQ(kOther, opens[0].first);
  EXPECT_EQ((std::vector<TokenId>{10, 11, 12, 20, 21}), opens[0].second.tokens);
  EXPECT_EQ(3u, opens[0].second.n_prompt);
  tokens(5, {99}, kTarget);
  EXPECT_TRUE(sent<wire::Decode>().empty()) << "the lost one is heard no more";
  tokens(5, {22}, kOther);
  EXPECT_EQ(1u, sent<wire::Decode>().size());
}

TEST_F(RequestTableTest, ATargetOfOtherNumericsDoesNotGoOnWithIt) {
  run_to_target();
  join(kTarget, wire::Role::kTarget, "target-0", 2, 999);
  table.worker_lost(kTarget, now, out);
  EXPECT_TRUE(sent<wire::Open>().empty());
  join(kTarget, wire::Role::kTarget, "target-0", 3);
  table.workers_changed(now, out);
  const auto opens = sent<wire::Open>();
  ASSERT_EQ(1u, opens.size());
  EXPECT_EQ(kTarget, opens[0].first) << "it waited for an equal one";
}

TEST_F(RequestTableTest, TheFourthLostTargetIsOneTooMany) {
  run_to_target();
  for (std::uint64_t life = 2; life < 6; ++life) {
    join(kTarget, wire::Role::kTarget, "target-0", life);
    table.worker_lost(kTarget, now, out);
  }
  const auto errors = answers<wire::ClientError>();
  ASSERT_EQ(1u, errors.size());
  EXPECT_EQ("unavailable", errors[0].error.code);
  EXPECT_EQ(0u, table.size());
}

TEST_F(RequestTableTest, ALostTokenizersStreamIsReplayedAndNoByteComesTwice) {
  auto request = ask();
  request.stream = true;
  run_to_target(request);
  tokens(3, {20, 21});
  text(5, "ab", 0);
  const auto before = answers<wire::ClientPiece>();
  ASSERT_EQ(1u, before.size());
  join(kOther, wire::Role::kTokenizer, "tokenizer-1");
  pool.lose(kTokenizer);
  out.clear();
  table.worker_lost(kTokenizer, now, out);
  tokens(5, {22});
  const auto decodes = sent<wire::Decode>();
  ASSERT_FALSE(decodes.empty());
  EXPECT_EQ(kOther, decodes[0].first);
  EXPECT_EQ(3u, decodes[0].second.position) << "from the first token";
  EXPECT_EQ((std::vector<TokenId>{20, 21, 22}), decodes[0].second.ids);
  hear(kOther, wire::Text{.next = 6, .text = "abc", .offset = 0});
  const auto after = answers<wire::ClientPiece>();
  ASSERT_EQ(1u, after.size());
  EXPECT_EQ("c", after[0].text);
}

TEST_F(RequestTableTest, ALostTextIsReplayed) {
  run_to_target();
  tokens(3, {20, 21});
  out.clear();
  text(5, "b", 1);  // the text before it never came
  advance(milliseconds(40));
  const auto decodes = sent<wire::Decode>();
  ASSERT_EQ(1u, decodes.size());
  EXPECT_EQ(3u, decodes[0].second.position);
  text(5, "ab", 0);
  hear(kTarget, wire::Done{.reason = FinishReason::kLength, .n_generated = 2});
  text(5, "", 2, true);
  const auto replies = answers<wire::ClientReply>();
  ASSERT_EQ(1u, replies.size());
  EXPECT_EQ("ab", replies[0].text);
}

TEST_F(RequestTableTest, ALostTextWithoutBytesIsReplayedWhereEndsOfTokensAreWanted) {
  auto request = ask();
  request.token_ends = true;
  run_to_target(request);
  tokens(3, {20, 21});
  out.clear();
  hear(kTokenizer, wire::Text{.next = 5, .text = "ab", .ends = {2}});
  advance(milliseconds(40));
  EXPECT_EQ(1u, sent<wire::Decode>().size());
  hear(kTokenizer, wire::Text{.next = 5, .text = "ab", .ends = {0, 2}});
  hear(kTarget, wire::Done{.reason = FinishReason::kLength, .n_generated = 2});
  text(5, "", 2, true);
  const auto replies = answers<wire::ClientReply>();
  ASSERT_EQ(1u, replies.size());
  EXPECT_EQ((std::vector<std::uint32_t>{0, 2}), replies[0].token_ends);
}

TEST_F(RequestTableTest, AnOldTokenizerNeedNotSayTheEndsOfTokens) {
  constexpr std::uint8_t kBeforeTokenEnds = 2;
  join(kTokenizer, wire::Role::kTokenizer, "tokenizer-0", 1, 4, {}, 100, kBeforeTokenEnds);
  auto request = ask();
  request.token_ends = true;
  run_to_target(request);
  tokens(3, {20, 21});
  text(5, "ab", 0);
  hear(kTarget, wire::Done{.reason = FinishReason::kLength, .n_generated = 2});
  text(5, "", 2, true);
  const auto replies = answers<wire::ClientReply>();
  ASSERT_EQ(1u, replies.size());
  EXPECT_EQ("ab", replies[0].text);
}

TEST_F(RequestTableTest, AStopStringCutsEverythingBehindItAndClosesTheSequence) {
  auto request = ask(50);
  request.params.n_logprobs = 0;
  run_to_target(request);
  hear(kTarget, wire::Tokens{.position = 3,
                             .ids = {20, 21, 22, 23},
                             .accepted = {},
                             .logprobs = std::vector<TokenLogprobs>(4)});
  out.clear();
  hear(kTokenizer, wire::Text{.next = 5,
                              .text = "a",
                              .stopped = true,
                              .stop_string = "b",
                              .n_tokens = 2,
                              .final = true});
  const auto closes = sent<wire::Close>();
  ASSERT_EQ(1u, closes.size());
  EXPECT_EQ(CloseReason::kStop, closes[0].second.reason);
  tokens(7, {24});
  hear(kTarget, wire::Done{.reason = FinishReason::kStop, .n_generated = 5});
  const auto replies = answers<wire::ClientReply>();
  ASSERT_EQ(1u, replies.size());
  EXPECT_EQ("a", replies[0].text);
  EXPECT_EQ((std::vector<TokenId>{20, 21}), replies[0].token_ids);
  EXPECT_EQ(2u, replies[0].logprobs.size());
  EXPECT_EQ(2u, replies[0].usage.completion_tokens);
  EXPECT_EQ("stop", replies[0].finish_reason);
  EXPECT_EQ(wire::StopReason{std::string("b")}, replies[0].stop_reason);
}

// A worker that lies must not make the router read past what it has.
TEST_F(RequestTableTest, AStopStringBeforeWhatWasDeliveredTakesNothingBack) {
  auto request = ask(50);
  request.stream = true;
  request.params.n_logprobs = 0;
  run_to_target(request);
  tokens(3, {20, 21, 22});  // without the log-probabilities that were asked for
  text(5, "ab", 0);
  EXPECT_EQ(1u, answers<wire::ClientPiece>().size());
  hear(kTokenizer, wire::Text{.next = 6, .stopped = true, .stop_string = "b", .offset = 2});
  hear(kTarget, wire::Done{.reason = FinishReason::kStop, .n_generated = 3});
  const auto replies = answers<wire::ClientReply>();
  ASSERT_EQ(1u, replies.size());
  EXPECT_TRUE(replies[0].token_ids.empty());
  EXPECT_TRUE(replies[0].logprobs.empty());
  EXPECT_EQ(2u, replies[0].usage.completion_tokens);
}

TEST_F(RequestTableTest, TheTargetsCountsAreAwaitedOnlyForAMoment) {
  run_to_target(ask(50));
  tokens(3, {20, 21});
  hear(kTokenizer,
       wire::Text{.next = 5, .text = "a", .stopped = true, .stop_string = "b", .n_tokens = 2});
  advance(milliseconds(499));
  EXPECT_TRUE(answers<wire::ClientReply>().empty()) << "a pass may take so long";
  advance(milliseconds(1));
  EXPECT_EQ(1u, answers<wire::ClientReply>().size());
}

TEST_F(RequestTableTest, TheSameIdJoinsTheRunningRequestAndIsToldFromTheBeginning) {
  auto request = ask();
  request.stream = true;
  run_to_target(request);
  tokens(3, {20});
  text(4, "a", 0);
  EXPECT_EQ(1u, answers<wire::ClientPiece>().size());
  submit(request, kId, client("d"));
  EXPECT_TRUE(sent<wire::Encode>().empty()) << "nothing is done twice";
  const auto pieces = answers<wire::ClientPiece>();
  ASSERT_EQ(1u, pieces.size());
  EXPECT_EQ("a", pieces[0].text);
  EXPECT_EQ(1u, table.size());
}

// Pieces of the first telling may still be on their way to the client: it places each by what it
// says.
TEST_F(RequestTableTest, APieceSaysWhereItBegins) {
  auto request = ask();
  request.stream = true;
  run_to_target(request);
  const auto say = [&](const std::string& bytes, TokenId token, Position next,
                       std::uint32_t offset) {
    tokens(next - 1, {token});
    text(next, bytes, offset);
  };
  say("ä", 20, 4, 0);
  say("b", 21, 5, 2);
  submit(request);  // a retry on the same connection
  tokens(5, {22});
  hear(kTarget, wire::Done{.reason = FinishReason::kLength, .n_generated = 3});
  text(6, "c", 3, true);
  std::vector<std::pair<std::uint32_t, std::uint32_t>> places;
  for (const auto& piece : answers<wire::ClientPiece>())
    places.emplace_back(piece.position, piece.offset);
  EXPECT_EQ((std::vector<std::pair<std::uint32_t, std::uint32_t>>{{0, 0}, {1, 2}, {0, 0}}), places);
  const auto replies = answers<wire::ClientReply>();
  ASSERT_EQ(1u, replies.size());
  EXPECT_EQ(2u, replies[0].position);
  EXPECT_EQ(3u, replies[0].offset) << "bytes, not characters";
  EXPECT_EQ("c", replies[0].text);
  submit(request);
  const auto kept = answers<wire::ClientReply>();
  ASSERT_EQ(1u, kept.size());
  EXPECT_EQ(0u, kept[0].position);
  EXPECT_EQ(0u, kept[0].offset);
  EXPECT_EQ("äbc", kept[0].text);
}

TEST_F(RequestTableTest, AnswersSayWhichChoiceTheyAre) {
  auto request = ask();
  request.stream = true;
  request.params.choice = 5;
  submit(std::move(request));
  hear(kTokenizer, wire::Encoded{.tokens = {10, 11, 12}});
  EXPECT_EQ(5u, sent<wire::Open>().at(0).second.params.choice);
  hear(kTarget, wire::Opened{});
  tokens(3, {100, 101, 102});
  text(6, "abc", 0);
  EXPECT_EQ(5u, answers<wire::ClientPiece>().at(0).index);
  hear(kTarget, wire::Done{.reason = FinishReason::kLength, .n_generated = 3});
  text(6, "", 3, true);
  EXPECT_EQ(5u, answers<wire::ClientReply>().at(0).index);
}

TEST_F(RequestTableTest, TheFirstPieceNamesTheModelAsTheReplyDoes) {
  auto request = ask();
  request.stream = true;
  run_to_target(request);
  tokens(3, {20, 21});
  text(5, "ab", 0);
  tokens(5, {22});
  text(6, "c", 2);
  hear(kTarget, wire::Done{.reason = FinishReason::kLength, .n_generated = 3});
  text(6, "", 3, true);
  const auto pieces = answers<wire::ClientPiece>();
  const auto replies = answers<wire::ClientReply>();
  ASSERT_EQ(2u, pieces.size());
  ASSERT_EQ(1u, replies.size());
  EXPECT_FALSE(replies[0].model.empty() || replies[0].system_fingerprint.empty());
  EXPECT_EQ(replies[0].model, pieces[0].model);
  EXPECT_EQ(replies[0].system_fingerprint, pieces[0].system_fingerprint);
  EXPECT_TRUE(pieces[1].model.empty() && pieces[1].system_fingerprint.empty());
}

TEST_F(RequestTableTest, AFinishedRequestIsAnsweredAgainForAMinute) {
  run_to_target();
  tokens(3, {20});
  hear(kTarget, wire::Done{.reason = FinishReason::kLength, .n_generated = 1});
  text(4, "a", 0, true);
  const auto first = answers<wire::ClientReply>();
  out.clear();
  submit();
  EXPECT_EQ(first, answers<wire::ClientReply>());
  submit(ask(), kId, client(), 6);
  const auto errors = answers<wire::ClientError>();
  ASSERT_EQ(1u, errors.size());
  EXPECT_EQ("request_id", errors[0].error.param) << "another content under the same id";
  now += seconds(61);
  submit(ask(), kId, client(), 6);
  EXPECT_EQ(1u, sent<wire::Encode>().size()) << "forgotten: a new request";
}

TEST_F(RequestTableTest, AFullTableRefusesAtOnce) {
  for (std::uint64_t i = 0; i < 4; ++i) submit(ask(), {1, i});
  EXPECT_TRUE(answers<wire::ClientError>().empty());
  submit(ask(), {1, 4});
  const auto errors = answers<wire::ClientError>();
  ASSERT_EQ(1u, errors.size());
  EXPECT_EQ("queue_full", errors[0].error.code);
  EXPECT_GT(errors[0].error.retry_after_ms, 0u);
}

// All requests over HTTP come on the one connection of the edge.
TEST_F(RequestTableTest, OneConnectionMayHaveAsManyRequestsAsTheLimitsAllow) {
  RequestTable large{RequestRules{.max_requests = 5000}, pool};
  for (std::uint64_t i = 1; i <= 5000; ++i) {
    auto request = ask();
    request.tenant = std::to_string(i % 20);
    large.submit(client(), {1, i}, request, 5, now, out);
  }
  EXPECT_TRUE(answers<wire::ClientError>().empty());
  EXPECT_EQ(5000u, large.size());
}

TEST_F(RequestTableTest, ABusyTargetMeansTheOtherOneOrARefusalAtOnce) {
  run_to_target();
  hear(kTarget, wire::Busy{.code = ErrorCode::kQueueFull, .message = "full"});
  const auto errors = answers<wire::ClientError>();
  ASSERT_EQ(1u, errors.size());
  EXPECT_EQ("queue_full", errors[0].error.code);
  join(kOther, wire::Role::kTarget, "target-1");
  pool.find(kTarget)->placed_tokens = 0;  // as its next heartbeat will say
  run_to_target();
  hear(kTarget, wire::Busy{.code = ErrorCode::kQueueFull, .message = "full"});
  const auto opens = sent<wire::Open>();
  ASSERT_EQ(1u, opens.size());
  EXPECT_EQ(kOther, opens[0].first);
}

TEST_F(RequestTableTest, TwoFullTargetsAreAskedOnceEachAndTheClientIsTold) {
  join(kOther, wire::Role::kTarget, "target-1");
  run_to_target();
  hear(kTarget, wire::Busy{.code = ErrorCode::kQueueFull, .message = "full"});
  EXPECT_EQ(1u, sent<wire::Open>().size());
  hear(kOther, wire::Busy{.code = ErrorCode::kQueueFull, .message = "full"});
  EXPECT_TRUE(sent<wire::Open>().empty());
  const auto errors = answers<wire::ClientError>();
  ASSERT_EQ(1u, errors.size());
  EXPECT_EQ("queue_full", errors[0].error.code);
  EXPECT_EQ(0u, table.size());
}

TEST_F(RequestTableTest, PromptAndAnswerMustFitTheModel) {
  submit(ask(98));
  hear(kTokenizer, wire::Encoded{.tokens = {10, 11, 12}});
  auto errors = answers<wire::ClientError>();
  ASSERT_EQ(1u, errors.size());
  EXPECT_EQ("context_length_exceeded", errors[0].error.code);
  EXPECT_EQ("max_tokens", errors[0].error.param);
  submit(ask(1), {2, 2});
  hear(kTokenizer, wire::Encoded{.tokens = std::vector<TokenId>(100, 1)}, {2, 2});
  errors = answers<wire::ClientError>();
  ASSERT_EQ(1u, errors.size());
  EXPECT_EQ("prompt", errors[0].error.param);
}

TEST_F(RequestTableTest, APromptThatDoesNotFitIsBlamedOnTheKeyThatHeldIt) {
  const std::pair<wire::PromptKind, std::string> keys[] = {
      {wire::PromptKind::kTokens, "token_ids"},
      {wire::PromptKind::kMessages, "messages"},
      {wire::PromptKind::kText, "prompt"}};
  for (const auto& [kind, key] : keys) {
    for (const std::size_t n_tokens : {0, 100}) {
      auto request = ask(1);
      request.prompt_kind = kind;
      submit(request, {3, 3});
      hear(kTokenizer, wire::Encoded{.tokens = std::vector<TokenId>(n_tokens, 1)}, {3, 3});
      const auto errors = answers<wire::ClientError>();
      ASSERT_EQ(1u, errors.size());
      EXPECT_EQ(key, errors[0].error.param) << n_tokens;
    }
  }
}

TEST_F(RequestTableTest, AnUnknownModelIsRefusedNamingThoseThereAre) {
  auto request = ask();
  request.model = "gpt";
  submit(request);
  const auto errors = answers<wire::ClientError>();
  ASSERT_EQ(1u, errors.size());
  EXPECT_EQ("model_not_found", errors[0].error.code);
  EXPECT_NE(std::string::npos, errors[0].error.message.find("there is m"));
}

TEST_F(RequestTableTest, AnUnknownModelIsRefusedNamingEachOnceHoweverManyTargetsHaveIt) {
  join(kOther, wire::Role::kTarget, "target-1");
  auto request = ask();
  request.model = "gpt";
  submit(request);
  const auto errors = answers<wire::ClientError>();
  ASSERT_EQ(1u, errors.size());
  EXPECT_EQ("model \"gpt\" is not served; there is m", errors[0].error.message);
}

// ---- requests that name no model

class TwoModels : public RequestTableTest {
 protected:
  // Another model of the same vocabulary, which a request that may go anywhere would go to.
  void join_other() {
    wire::Header header;
    header.sender = kOther;
    header.incarnation = Incarnation{1};
    const wire::Hello hello{.role = wire::Role::kTarget,
                            .name = "target-1",
                            .fingerprints = {1, 2, 33, 4},
                            .model_name = "n",
                            .vocab_size = 1000,
                            .max_model_len = 100,
                            .max_sequences = 8};
    ASSERT_TRUE(pool.hello(header, {.socket = 1, .routing = "other"}, hello, now).accepted);
  }
};

TEST_F(TwoModels, ARequestThatNamesNoneIsRefusedWithTheNamesOfBoth) {
  join_other();
  submit();
  const auto errors = answers<wire::ClientError>();
  ASSERT_EQ(1u, errors.size());
  EXPECT_EQ("invalid_value", errors[0].error.code);
  EXPECT_EQ("model", errors[0].error.param);
  EXPECT_NE(std::string::npos, errors[0].error.message.find("m, n")) << errors[0].error.message;
  EXPECT_EQ(0u, table.size());
}

TEST_F(TwoModels, WhatWaitsIsCountedForTheModelThatItIsFor) {
  using Counts = std::map<std::string, std::size_t>;
  join_other();
  EXPECT_EQ(Counts{}, table.n_waiting_by_model(now));
  std::uint64_t n_asked = 0;
  for (const char* model : {"m", "n", "m"}) {
    auto request = ask();
    request.model = model;
    submit(std::move(request), {1, ++n_asked});
  }
  EXPECT_EQ((Counts{{"m", 2}, {"n", 1}}), table.n_waiting_by_model(now));
  EXPECT_EQ(3u, table.n_waiting());
  hear(kTokenizer, wire::Encoded{.tokens = {10}}, {1, 1});
  ASSERT_EQ(1u, sent<wire::Open>().size());
  EXPECT_EQ((Counts{{"m", 1}, {"n", 1}}), table.n_waiting_by_model(now)) << "one has a place";
  pool.lose(kTarget);
  table.worker_lost(kTarget, now, out);
  EXPECT_EQ((Counts{{"m", 2}, {"n", 1}}), table.n_waiting_by_model(now)) << "it waits again";
}

TEST_F(TwoModels, OneThatWasLostIsNotReplacedByTheOther) {
  join_other();
  pool.lose(kTarget);
  submit();
  EXPECT_EQ(1u, answers<wire::ClientError>().size()) << "it is not for the other, either";
}

TEST_F(TwoModels, ATargetThatWasLostIsWaitedForBesideTheOther) {
  join_other();
  pool.lose(kTarget);
  auto request = ask();
  request.model = "m";
  submit(std::move(request));
  advance(seconds(60));  // it reads its model again
  EXPECT_TRUE(answers<wire::ClientError>().empty());
  join(kTarget, wire::Role::kTarget, "target-0", 2);
  table.workers_changed(now, out);
  hear(kTokenizer, wire::Encoded{.tokens = {10}});
  EXPECT_EQ(1u, sent<wire::Open>().size());
}

TEST_F(TwoModels, ARequestMeansTheModelThatWasThereAloneWhenItCame) {
  submit();
  join_other();
  pool.find(kTarget)->placed_tokens = 1000;  // the other one is much emptier
  hear(kTokenizer, wire::Encoded{.tokens = {10, 11, 12}});
  auto opens = sent<wire::Open>();
  ASSERT_EQ(1u, opens.size());
  EXPECT_EQ(kTarget, opens[0].first);
  pool.end(kTarget, Incarnation{1});
  table.worker_lost(kTarget, now, out);
  EXPECT_TRUE(sent<wire::Open>().empty());
}

TEST_F(TwoModels, ARequestThatCameBeforeBothIsRefusedWhenBothAreThere) {
  pool.end(kTarget, Incarnation{1});
  now += seconds(31);
  submit();
  EXPECT_TRUE(answers<wire::ClientError>().empty());
  join(kTarget, wire::Role::kTarget, "target-0", 2);
  join_other();
  table.workers_changed(now, out);
  ASSERT_EQ(1u, answers<wire::ClientError>().size());
  EXPECT_EQ(0u, table.size());
}

TEST_F(TwoModels, TheConfiguredOneAnswersWhereTheRequestNamesNone) {
  join_other();
  RequestTable with_default{RequestRules{.max_requests = 4, .default_model = "n"}, pool};
  with_default.submit(client(), kId, ask(), 5, now, out);
  with_default.on_message(kTokenizer, kId, wire::Encoded{.tokens = {10, 11, 12}}, now, out);
  const auto opens = sent<wire::Open>();
  ASSERT_EQ(1u, opens.size());
  EXPECT_EQ(kOther, opens[0].first);
}

TEST_F(TwoModels, DefaultIsTheModelOfRequestsThatNameNone) {
  join_other();
  auto request = ask();
  request.model = "default";
  submit(request);
  const auto errors = answers<wire::ClientError>();
  ASSERT_EQ(1u, errors.size());
  EXPECT_NE(std::string::npos, errors[0].error.message.find("m, n")) << errors[0].error.message;
  RequestTable with_default{RequestRules{.max_requests = 4, .default_model = "n"}, pool};
  with_default.submit(client(), kId, request, 5, now, out);
  with_default.on_message(kTokenizer, kId, wire::Encoded{.tokens = {10, 11, 12}}, now, out);
  const auto opens = sent<wire::Open>();
  ASSERT_EQ(1u, opens.size());
  EXPECT_EQ(kOther, opens[0].first);
}

// Models "m" and "n" (and "nn"), each with a limit of its own.
class LimitsOfModels : public TwoModels {
 protected:
  void SetUp() override {
    TwoModels::SetUp();
    join_other();
    pool.find(kOther)->hello.aliases = {"n*"};
  }
  void submit_for(const std::string& model, const std::string& tenant = {}) {
    auto request = ask();
    request.model = model;
    request.tenant = tenant;
    limited.submit(client(), {9, ++n_}, request, n_, now, out);
  }
  RequestTable limited{
      RequestRules{.max_requests = 36, .model_limits = {{"chat", {"m"}, 4}, {"code", {"n*"}, 32}}},
      pool};
  std::uint64_t n_ = 0;
};

TEST_F(LimitsOfModels, TheQueueOfOneModelLeavesThePlacesOfAnother) {
  for (int i = 0; i < 5; ++i) submit_for("m");
  auto errors = answers<wire::ClientError>();
  ASSERT_EQ(1u, errors.size());
  EXPECT_EQ("queue_full", errors[0].error.code);
  EXPECT_EQ(
      "the router holds 4 requests for model chat; the limit is limits.chat.max_running + "
      "limits.chat.max_waiting",
      errors[0].error.message);
  submit_for("n");
  EXPECT_TRUE(answers<wire::ClientError>().empty());
  limited.cancel(client(), {9, 1}, now, out);
  submit_for("m");
  EXPECT_TRUE(answers<wire::ClientError>().empty()) << "one of chat has ended";
}

TEST_F(LimitsOfModels, NamesOfOneModelShareItsLimit) {
  for (int i = 0; i < 15; ++i) submit_for("n", "a");
  for (int i = 0; i < 15; ++i) submit_for("nn", "b");
  submit_for("n", "c");
  submit_for("nn", "d");
  EXPECT_TRUE(answers<wire::ClientError>().empty());
  submit_for("n", "e");
  EXPECT_EQ(1u, answers<wire::ClientError>().size());
}

TEST_F(LimitsOfModels, TheLastPlacesOfEachModelAreForFlowsThatHaveFew) {
  for (int i = 0; i < 31; ++i) submit_for("n", "many");
  const auto errors = answers<wire::ClientError>();
  ASSERT_EQ(1u, errors.size());
  EXPECT_EQ(
      "the router holds 30 requests for model code, 30 of this tenant or connection; the last 2 of "
      "limits.code.max_running + limits.code.max_waiting are for others",
      errors[0].error.message);
  submit_for("n", "few");
  EXPECT_TRUE(answers<wire::ClientError>().empty());
}

TEST_F(RequestTableTest, AModelMayRegisterALittleLaterThanTheOthersAfterARestartOfTheRouter) {
  RequestTable fresh{RequestRules{.max_requests = 4, .registration = seconds(3)}, pool};
  fresh.begin(now);
  auto request = ask();
  request.model = "late";
  fresh.submit(client(), kId, request, 5, now, out);
  EXPECT_TRUE(answers<wire::ClientError>().empty());
  listen(milliseconds(2999));
  EXPECT_LE(fresh.tick(now, out), now + milliseconds(1));
  EXPECT_TRUE(answers<wire::ClientError>().empty());
  listen(milliseconds(1));
  fresh.tick(now, out);
  EXPECT_EQ("model_not_found", answers<wire::ClientError>().at(0).error.code)
      << "by now all are there";
  fresh.submit(client(), {7, 7}, request, 5, now, out);
  EXPECT_EQ("model_not_found", answers<wire::ClientError>().at(0).error.code) << "at once";
}

TEST(RegistrationTime, CoversTheHeartbeatByWhichAServiceNoticesANewRouter) {
  const Duration here = registration_time("ipc:///run/foretoken/router", milliseconds(250));
  EXPECT_GT(here, milliseconds(600 + 250));
  EXPECT_GE(registration_time("ipc:///run/foretoken/router", seconds(10)),
            here + milliseconds(9750));
  EXPECT_GE(registration_time("tcp://10.1.2.3:5554", milliseconds(250)), here + seconds(2));
}

// Which model is the only one is known when all services have registered.
class NewRouter : public TwoModels {
 protected:
  void SetUp() override {
    TwoModels::SetUp();
    fresh.begin(now);
  }
  RequestTable fresh{RequestRules{.max_requests = 4, .registration = seconds(3)}, pool};
};

TEST_F(NewRouter, ARequestWithoutAModelWaitsUntilAllHaveRegistered) {
  fresh.submit(client(), kId, ask(), 5, now, out);
  listen(seconds(1));
  fresh.workers_changed(now, out);
  fresh.tick(now, out);
  listen(milliseconds(1999));
  EXPECT_LE(fresh.tick(now, out), now + milliseconds(1));
  EXPECT_TRUE(out.empty());
  listen(milliseconds(1));
  fresh.tick(now, out);
  EXPECT_EQ(1u, sent<wire::Encode>().size()) << "there is one model";
  fresh.submit(client(), {7, 7}, ask(), 5, now, out);
  EXPECT_EQ(1u, sent<wire::Encode>().size()) << "at once from now on";
}

// Services could not register while it was stopped, and clients ask at once.
TEST_F(NewRouter, ThatIsStoppedAtOnceWaitsForItsServicesAllTheSame) {
  listen(milliseconds(100));
  now += seconds(60);
  fresh.submit(client(), kId, ask(), 5, now, out);
  EXPECT_TRUE(out.empty()) << "read before anything else";
  pool.count_silence(now);
  fresh.tick(now, out);
  EXPECT_TRUE(out.empty());
  listen(milliseconds(2399));
  fresh.tick(now, out);
  EXPECT_TRUE(out.empty());
  listen(milliseconds(1));
  EXPECT_TRUE(pool.all_here());
  fresh.tick(now, out);
  EXPECT_EQ(1u, sent<wire::Encode>().size());
}

// The end of registration passes while the router waits for messages: it has not listened until
// then yet.
TEST_F(NewRouter, ARequestThatIsReadBeforeTheFirstTurnAfterRegistrationIsSettledInThatTurn) {
  listen(milliseconds(2900));
  now += milliseconds(150);
  fresh.submit(client(), kId, ask(), 5, now, out);
  auto unknown = ask();
  unknown.model = "late";
  fresh.submit(client(), {7, 7}, unknown, 5, now, out);
  EXPECT_TRUE(out.empty());
  pool.count_silence(now);
  fresh.tick(now += milliseconds(1), out);
  EXPECT_EQ(1u, sent<wire::Encode>().size());
  const auto errors = answers<wire::ClientError>();
  ASSERT_EQ(1u, errors.size());
  EXPECT_EQ("model_not_found", errors[0].error.code);
}

TEST_F(NewRouter, ARequestWithoutAModelIsRefusedWhenTheSecondModelRegisters) {
  fresh.submit(client(), kId, ask(), 5, now, out);
  listen(seconds(2));
  join_other();
  fresh.workers_changed(now, out);
  const auto errors = answers<wire::ClientError>();
  ASSERT_EQ(1u, errors.size());
  EXPECT_EQ("invalid_value", errors[0].error.code);
  EXPECT_TRUE(sent<wire::Encode>().empty());
}

TEST_F(NewRouter, ARequestThatSaysItsModelOrHasADefaultDoesNotWait) {
  auto request = ask();
  request.model = "m";
  fresh.submit(client(), kId, request, 5, now, out);
  EXPECT_EQ(1u, sent<wire::Encode>().size());
  RequestTable with_default{
      RequestRules{.max_requests = 4, .default_model = "m", .registration = seconds(3)}, pool};
  with_default.begin(now);
  with_default.submit(client(), kId, ask(), 5, now, out);
  EXPECT_EQ(1u, sent<wire::Encode>().size());
}

TEST(RouterOptions, KnowTheOnlyModelWhereAllServicesAreOfThisHost) {
  LoadedConfig loaded;
  loaded.config.model.name = "m";
  EXPECT_EQ("m", router_options(loaded, "router-0").rules.only_model);
  loaded.config.bus.router = "tcp://127.0.0.1:5554";
  EXPECT_EQ("m", router_options(loaded, "router-0").rules.only_model);
  loaded.config.bus.router = "tcp://10.1.2.3:5554";
  EXPECT_EQ("", router_options(loaded, "router-0").rules.only_model);
  loaded.config.bus.router = "tcp://127.0.0.1:5554";
  loaded.models = {{"one", loaded.config}, {"two", loaded.config}};
  EXPECT_EQ("", router_options(loaded, "router-0").rules.only_model);
}

TEST(RouterOptions, BoundTheRequestsOfEachModelAndOfAll) {
  LoadedConfig loaded;
  loaded.config.limits.max_running = 8;
  loaded.config.limits.max_waiting = 100;
  EXPECT_EQ(108u, router_options(loaded, "router-0").rules.max_requests);
  EXPECT_TRUE(router_options(loaded, "router-0").rules.model_limits.empty());
  loaded.models = {{"chat", loaded.config}, {"code", loaded.config}};
  loaded.models.at("chat").limits.max_waiting = 4000;
  const RequestRules rules = router_options(loaded, "router-0").rules;
  EXPECT_EQ(4008u + 108u, rules.max_requests);
  ASSERT_EQ(2u, rules.model_limits.size());
  EXPECT_EQ("chat", rules.model_limits[0].model);
  EXPECT_EQ(4008u, rules.model_limits[0].most);
  EXPECT_EQ(108u, rules.model_limits[1].most);
}

TEST_F(NewRouter, ARequestForTheOnlyConfiguredModelDoesNotWaitForOthersToRegister) {
  RequestTable of_one{
      RequestRules{.max_requests = 4, .only_model = "m", .registration = seconds(3)}, pool};
  of_one.begin(now);
  of_one.submit(client(), kId, ask(), 5, now, out);
  EXPECT_EQ(1u, sent<wire::Encode>().size());
  RequestTable of_another{
      RequestRules{.max_requests = 4, .only_model = "n", .registration = seconds(3)}, pool};
  of_another.begin(now);
  of_another.submit(client(), kId, ask(), 5, now, out);
  EXPECT_TRUE(out.empty()) << "the configured one is still to come";
}

TEST_F(NewRouter, TheOnlyConfiguredModelDoesNotDecideWhereTwoAreServed) {
  join_other();
  RequestTable of_one{
      RequestRules{.max_requests = 4, .only_model = "m", .registration = seconds(3)}, pool};
  of_one.begin(now);
  of_one.submit(client(), kId, ask(), 5, now, out);
  const auto errors = answers<wire::ClientError>();
  ASSERT_EQ(1u, errors.size());
  EXPECT_EQ("invalid_value", errors[0].error.code);
}

TEST_F(NewRouter, ARequestWaitsForItsModelNoLongerThanItsDeadline) {
  auto request = ask();
  request.timeout_ms = 1000;
  fresh.submit(client(), kId, request, 5, now, out);
  now += seconds(1);
  fresh.tick(now, out);
  EXPECT_EQ("deadline_exceeded", answers<wire::ClientError>().at(0).error.code);
}

wire::ClientRequest ask_with_constraint() {
  wire::ClientRequest request;
  request.prompt = "hello";
  request.params.regex = "a+";
  return request;
}

TEST_F(RequestTableTest, AConstraintGoesToTheTargetAndTellsTheTokenizerToBeginWithoutAThought) {
  submit(ask_with_constraint());
  EXPECT_TRUE(sent<wire::Encode>().at(0).second.without_thinking);
  hear(kTokenizer, wire::Encoded{.tokens = {10, 11, 12}});
  EXPECT_EQ(sent<wire::Open>().at(0).second.params.regex, "a+");
  submit(ask(), RequestId{1, 2});
  EXPECT_FALSE(sent<wire::Encode>().at(0).second.without_thinking);
}

TEST_F(RequestTableTest, AConstrainedAnswerThatBeginsWithinAThoughtIsRefused) {
  submit(ask_with_constraint());
  hear(kTokenizer, wire::Encoded{.tokens = {10, 11, 12}, .begun = "<think>"});
  const auto errors = answers<wire::ClientError>();
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors[0].error.code, "invalid_value");
  EXPECT_EQ(errors[0].error.param, "regex");
  EXPECT_THAT(errors[0].error.message, testing::HasSubstr("ends within a thought"));
  EXPECT_EQ(table.size(), 0u);
}

TEST_F(RequestTableTest, OfSeveralTargetsOneThatKnowsConstraintsGetsTheConstrainedRequest) {
  constexpr WorkerId kNewer{77};
  join(kTarget, wire::Role::kTarget, "older", 2, 4, {}, 100, 3);
  join(kNewer, wire::Role::kTarget, "newer", 2, 4);
  submit(ask_with_constraint());
  hear(kTokenizer, wire::Encoded{.tokens = {10, 11, 12}});
  const auto opened = sent<wire::Open>();
  ASSERT_EQ(opened.size(), 1u);
  EXPECT_EQ(opened[0].first, kNewer);
}

TEST_F(RequestTableTest, ATargetThatKnowsNoConstraintsGetsNoConstrainedRequest) {
  join(kTarget, wire::Role::kTarget, "t", 2, 4, {}, 100, 3);
  submit(ask_with_constraint());
  hear(kTokenizer, wire::Encoded{.tokens = {10, 11, 12}});
  EXPECT_TRUE(sent<wire::Open>().empty());
  const auto errors = answers<wire::ClientError>();
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors[0].error.code, "unsupported_parameter");
  EXPECT_EQ(errors[0].error.param, "regex");
  EXPECT_EQ(errors[0].error.message, "target t constrains no answers: it is older than the router");
  submit(ask(), RequestId{1, 2});
  hear(kTokenizer, wire::Encoded{.tokens = {10, 11, 12}}, RequestId{1, 2});
  EXPECT_EQ(sent<wire::Open>().size(), 1u) << "one without a constraint is for it, too";
}

TEST_F(RequestTableTest, CancelEndsItWithWhatThereIs) {
  auto request = ask(50);
  request.stream = true;
  run_to_target(request);
  tokens(3, {20, 21});
  text(4, "a", 0);
  out.clear();
  table.cancel(client("other"), kId, now, out);
  EXPECT_EQ(1u, sent<wire::Close>().size());
  EXPECT_EQ(1u, sent<wire::StreamClose>().size());
  const auto replies = answers<wire::ClientReply>();
  ASSERT_EQ(2u, replies.size()) << "who waited, and who asked to cancel";
  EXPECT_EQ("cancelled", replies[0].finish_reason);
  EXPECT_EQ(1u, replies[0].usage.completion_tokens);
  table.cancel(client("other"), kId, now, out);
  EXPECT_EQ(1u, answers<wire::ClientError>().size()) << "it is over";
}

// The tokens of the one could come late and be taken for the other's.
TEST_F(RequestTableTest, AnIdMeansOneRequestForAMinuteAfterItsEndWhateverThatWas) {
  const auto is_refused_then = [&](std::uint64_t content) {
    submit(ask(), kId, client(), content);
    const auto errors = answers<wire::ClientError>();
    return errors.size() == 1 && errors[0].error.param == "request_id" &&
           sent<wire::Encode>().empty();
  };
  run_to_target();
  table.cancel(client(), kId, now, out);
  out.clear();
  EXPECT_TRUE(is_refused_then(6)) << "cancelled";
  tokens(3, {20, 21});
  EXPECT_TRUE(answers<wire::ClientPiece>().empty());
  run_to_target();  // with the same content it runs anew
  table.client_gone(client(), now, out);
  EXPECT_TRUE(is_refused_then(6)) << "its client had left";
  run_to_target();
  hear(kTarget, wire::Failed{.code = ErrorCode::kInternal, .message = "out of order"});
  out.clear();
  EXPECT_TRUE(is_refused_then(6)) << "failed";
  now += seconds(60);
  EXPECT_TRUE(is_refused_then(6));
  now += seconds(1);
  EXPECT_FALSE(is_refused_then(6)) << "forgotten: a new request";
}

TEST_F(RequestTableTest, ARequestThatWasCancelledRunsAnewWhenItIsAskedAgain) {
  auto request = ask();
  request.stream = true;
  run_to_target(request);
  tokens(3, {20, 21});
  text(5, "ab", 0);
  table.cancel(client(), kId, now, out);
  run_to_target(request);
  tokens(3, {20});
  out.clear();
  text(5, "ab", 0);  // said to the first run: it has text of a token that this one has not seen yet
  hear(kTokenizer, wire::Text{.next = 6, .text = "c", .stopped = true, .n_tokens = 3, .offset = 2});
  EXPECT_TRUE(answers<wire::ClientPiece>().empty());
  EXPECT_TRUE(answers<wire::ClientReply>().empty());
  text(4, "a", 0);
  tokens(4, {21, 22});
  hear(kTarget, wire::Done{.reason = FinishReason::kLength, .n_generated = 3});
  text(6, "bc", 1, true);
  const auto replies = answers<wire::ClientReply>();
  ASSERT_EQ(1u, replies.size());
  EXPECT_EQ(3u, replies[0].usage.completion_tokens);
  EXPECT_EQ("length", replies[0].finish_reason);
}

TEST_F(RequestTableTest, TheDeadlineOfAnEarlierRunEndsNoLaterOne) {
  auto request = ask();
  request.timeout_ms = 5000;
  run_to_target(request);
  tokens(3, {20});
  advance(seconds(4));
  table.client_gone(client(), now, out);
  run_to_target(request);
  tokens(3, {20});
  advance(seconds(1));
  out.clear();
  hear(kTarget, wire::Done{.reason = FinishReason::kDeadline, .n_generated = 1});
  text(4, "a", 0, true);
  EXPECT_TRUE(answers<wire::ClientReply>().empty());
  EXPECT_EQ(1u, sent<wire::Close>().size()) << "if it has ended there all the same, it begins anew";
  advance(milliseconds(100));
  EXPECT_EQ(1u, sent<wire::Open>().size());
  now += seconds(4);
  hear(kTarget, wire::Done{.reason = FinishReason::kDeadline, .n_generated = 1});
  text(4, "a", 0, true);
  const auto replies = answers<wire::ClientReply>();
  ASSERT_EQ(1u, replies.size());
  EXPECT_EQ("deadline", replies[0].finish_reason);
}

TEST_F(RequestTableTest, AClientThatIsGoneFreesWhatItHeld) {
  run_to_target();
  table.client_gone(client(), now, out);
  EXPECT_EQ(1u, sent<wire::Close>().size());
  EXPECT_EQ(0u, table.size());
  EXPECT_EQ(0u, pool.find(kTarget)->n_placed);
}

TEST_F(RequestTableTest, TheDeadlineEndsItWithWhatThereIsOrWithAnError) {
  auto request = ask();
  request.timeout_ms = 1000;
  run_to_target(request);
  advance(milliseconds(1500));
  EXPECT_EQ("deadline_exceeded", answers<wire::ClientError>().at(0).error.code);
  EXPECT_EQ(1u, sent<wire::Close>().size());
}

TEST_F(RequestTableTest, WithoutAnyTargetItWaitsALittleForOneToStart) {
  pool.end(kTarget, Incarnation{1});
  submit();
  EXPECT_TRUE(answers<wire::ClientError>().empty());
  advance(seconds(5));
  join(kTarget, wire::Role::kTarget, "target-0", 2);
  table.workers_changed(now, out);
  EXPECT_EQ(1u, sent<wire::Encode>().size());
  pool.end(kTarget, Incarnation{2});
  submit(ask(), {3, 3});
  advance(seconds(15));
  const auto errors = answers<wire::ClientError>();
  ASSERT_GE(errors.size(), 1u);
  EXPECT_EQ("unavailable", errors.back().error.code);
}

TEST_F(RequestTableTest, ATargetThatWasLostIsWaitedForUntilTheDeadline) {
  run_to_target();
  pool.lose(kTarget);
  table.worker_lost(kTarget, now, out);
  advance(seconds(120));  // it reads a large model again
  EXPECT_TRUE(answers<wire::ClientError>().empty());
  EXPECT_GT(table.tick(now, out), now) << "and nothing is asked in a loop";
  join(kTarget, wire::Role::kTarget, "target-0", 2);
  table.workers_changed(now, out);
  EXPECT_EQ(1u, sent<wire::Open>().size());
}

TEST_F(RequestTableTest, ATargetThatSaidGoodbyeIsWaitedForUntilTheDeadline) {
  run_to_target();
  pool.end(kTarget, Incarnation{1});
  table.worker_lost(kTarget, now, out);
  advance(seconds(60));  // it has no token yet, and its target is restarted
  EXPECT_TRUE(answers<wire::ClientError>().empty());
  join(kTarget, wire::Role::kTarget, "target-0", 2);
  table.workers_changed(now, out);
  EXPECT_EQ(1u, sent<wire::Open>().size());
}

TEST_F(RequestTableTest, APromptThatLostItsTargetEndsSoonBesideAnotherOneOfTheModel) {
  run_to_target();
  pool.end(kTarget, Incarnation{1});
  table.worker_lost(kTarget, now, out);
  join(kTarget, wire::Role::kTarget, "target-0", 2);
  pool.find(kTarget)->hello.fingerprints.model += 1;  // it may not continue what the first began
  table.workers_changed(now, out);
  advance(seconds(16));
  const auto errors = answers<wire::ClientError>();
  ASSERT_EQ(1u, errors.size());
  EXPECT_EQ("unavailable", errors[0].error.code);
}

TEST_F(RequestTableTest, WhatWasAcceptedBeforeAWorkerDrainsIsFinishedThere) {
  submit();
  now += milliseconds(1);
  drains(kTokenizer);
  drains(kTarget);
  EXPECT_TRUE(needs(kTokenizer));
  EXPECT_TRUE(needs(kTarget)) << "not placed yet, and no other target is there";
  hear(kTokenizer, wire::Encoded{.tokens = {10, 11, 12}});
  const auto opened = sent<wire::Open>();
  ASSERT_EQ(1u, opened.size());
  EXPECT_EQ(kTarget, opened[0].first);
  tokens(3, {20, 21});
  EXPECT_EQ(1u, sent<wire::Decode>().size());
  EXPECT_TRUE(needs(kTarget));
  hear(kTarget, wire::Done{.reason = FinishReason::kLength, .n_generated = 2});
  EXPECT_FALSE(needs(kTarget)) << "all tokens are here";
  EXPECT_TRUE(needs(kTokenizer)) << "the last text is not";
  text(5, "ab", 0, true);
  EXPECT_EQ(1u, answers<wire::ClientReply>().size());
  EXPECT_FALSE(needs(kTokenizer));
}

TEST_F(RequestTableTest, AStreamIsReplayedAtTheTokenizerThatDrainsIfItIsTheOnlyOne) {
  run_to_target();
  drains(kTokenizer);
  tokens(3, {20});
  EXPECT_EQ(1u, sent<wire::StreamOpen>().size());
  advance(seconds(1));  // its answer was lost
  const auto again = sent<wire::StreamOpen>();
  ASSERT_EQ(1u, again.size());
  EXPECT_EQ(kTokenizer, again[0].first);
}

TEST_F(RequestTableTest, WhatCameAfterATargetBeganToDrainWaitsForTheNextOneOrForTheEndOfAll) {
  drains(kTarget);
  now += milliseconds(1);
  submit();
  hear(kTokenizer, wire::Encoded{.tokens = {10, 11, 12}});
  EXPECT_TRUE(sent<wire::Open>().empty());
  EXPECT_FALSE(needs(kTarget))
      << "or a restart of the only target would take as long as requests come";
  join(kOther, wire::Role::kTarget, "target-1");
  table.workers_changed(now, out);
  EXPECT_EQ(kOther, sent<wire::Open>().at(0).first);

  pool.end(kOther, Incarnation{1});
  table.worker_lost(kOther, now, out);
  EXPECT_TRUE(sent<wire::Open>().empty());
  table.begin_drain(now, out);  // everything is being stopped: there will be no next one
  EXPECT_EQ(kTarget, sent<wire::Open>().at(0).first);
  EXPECT_TRUE(needs(kTarget));
}

TEST_F(RequestTableTest, OfTwoTargetsTheOneThatDrainsIsNeededForItsOwnAlone) {
  run_to_target();
  join(kOther, wire::Role::kTarget, "target-1");
  drains(kTarget);
  submit(ask(), {5, 5});
  hear(kTokenizer, wire::Encoded{.tokens = {10}}, {5, 5});
  EXPECT_EQ(kOther, sent<wire::Open>().at(0).first);
  EXPECT_TRUE(needs(kTarget)) << "its own";
  table.give_up(kId, {ErrorCode::kCancelled, "test"}, now, out);
  EXPECT_FALSE(needs(kTarget));
}

TEST_F(RequestTableTest, ASequenceThatIsNotWaitedForIsClosed) {
  tokens(3, {20});
  EXPECT_EQ(1u, sent<wire::Close>().size());
}

TEST_F(RequestTableTest, AMissingSeedFollowsFromTheRequestIdAlone) {
  submit();
  hear(kTokenizer, wire::Encoded{.tokens = {10}});
  const std::uint64_t seed = sent<wire::Open>().at(0).second.params.seed;
  EXPECT_EQ(seed_of(kId), seed);
  EXPECT_NE(seed_of({77, 0}), seed);
  auto request = ask();
  request.given.insert("seed");
  request.params.seed = 42;
  submit(request, {9, 9});
  hear(kTokenizer, wire::Encoded{.tokens = {10}}, {9, 9});
  EXPECT_EQ(42u, sent<wire::Open>().at(0).second.params.seed);
}

TEST_F(RequestTableTest, PlacesAreCountedUpAndDown) {
  run_to_target();
  EXPECT_EQ(1u, pool.find(kTarget)->n_placed);
  EXPECT_EQ(1u, pool.find(kTokenizer)->n_placed);
  table.fail_all({ErrorCode::kDraining, "stopping"}, now, out);
  EXPECT_EQ(0u, pool.find(kTarget)->n_placed);
  EXPECT_EQ(0u, pool.find(kTokenizer)->n_placed);
  EXPECT_EQ("draining", answers<wire::ClientError>().at(0).error.code);
}

TEST_F(RequestTableTest, AProcessThatReplacesAnotherCountsAllThatMovesToIt) {
  for (std::uint64_t i = 1; i <= 4; ++i) submit(ask(), {9, i});
  EXPECT_EQ(4u, pool.find(kTokenizer)->n_placed);
  join(kTokenizer, wire::Role::kTokenizer, "tokenizer-0", 2);
  table.worker_lost(kTokenizer, now, out);
  EXPECT_EQ(4u, pool.find(kTokenizer)->n_placed);
}

}  // namespace
}  // namespace foretoken
