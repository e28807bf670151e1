#include "services/router/token_questions.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace foretoken {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr WorkerId kFirst{1}, kSecond{2}, kLoneTarget{3};
constexpr FlowId kFlow = 11;
constexpr RequestId kAskedId{0, 7}, kOwn{0, 99};

class TokenQuestionsTest : public testing::Test {
 protected:
  static wire::Header header_of(WorkerId id) {
    wire::Header header;
    header.sender = id;
    header.incarnation = Incarnation{1};
    return header;
  }
  void join(WorkerId id, wire::Role role, const std::string& model, Fingerprint vocabulary = 1) {
    pool.hello(header_of(id), {.socket = 1, .routing = std::to_string(id.value)},
               {.role = role,
                .name = "w" + std::to_string(id.value),
                .fingerprints = {vocabulary, 2, 3, 4},
                .model_name = model},
               now);
  }
  void drains(WorkerId id) {
    pool.heartbeat(header_of(id), {.socket = 1, .routing = std::to_string(id.value)},
                   {.draining = true}, now);
  }
  static wire::ClientRequest tokenize(const std::string& model = "") {
    wire::ClientRequest request{.op = wire::ClientOp::kTokenize};
    request.prompt = "hello";
    request.model = model;
    return request;
  }
  static wire::ClientRequest detokenize() {
    wire::ClientRequest request{.op = wire::ClientOp::kDetokenize};
    request.prompt_kind = wire::PromptKind::kTokens;
    request.token_ids = {5, 6};
    return request;
  }
  void submit(wire::ClientRequest request, RequestId own = kOwn, FlowId flow = kFlow) {
    questions.submit({.socket = 2, .routing = "c"}, flow, kAskedId, own, std::move(request), now,
                     out);
  }
  // How many messages of a kind went to workers; all actions are forgotten.
  template <class M>
  int n_asked() {
    int n = 0;
    for (const Action& action : std::exchange(out, {}))
      if (const auto* to = std::get_if<ToWorker>(&action))
        n += std::holds_alternative<M>(to->message) ? 1 : 0;
    return n;
  }
  // The one message to a worker, and to whom.
  template <class M>
  std::optional<std::pair<WorkerId, M>> asked() {
    for (const Action& action : std::exchange(out, {}))
      if (const auto* to = std::get_if<ToWorker>(&action))
        if (const auto* message = std::get_if<M>(&to->message)) return {{to->worker, *message}};
    return std::nullopt;
  }
  // Who was asked to encode.
  std::optional<WorkerId> encoding() {
    const auto encode = asked<wire::Encode>();
    return encode ? std::optional(encode->first) : std::nullopt;
  }
  template <class A>
  std::optional<A> answered() {
    for (const Action& action : std::exchange(out, {}))
      if (const auto* to = std::get_if<ToClient>(&action))
        if (const auto* answer = std::get_if<A>(&to->answer)) return *answer;
    return std::nullopt;
  }

  TimePoint now = TimePoint{} + seconds(1000);
  Pool pool{seconds(1000)};
  TokenQuestions questions{pool, {.max_open = 2}};
  Actions out;
};

TEST_F(TokenQuestionsTest, ATextIsEncodedAsGenerateWould) {
  join(kFirst, wire::Role::kTokenizer, "m");
  submit(tokenize());
  const auto encode = asked<wire::Encode>();
  ASSERT_TRUE(encode.has_value());
  EXPECT_EQ("hello", encode->second.text);
  EXPECT_TRUE(encode->second.add_special_tokens);
  questions.on_message(kOwn, wire::Encoded{.tokens = {5, 6}}, now, out);
  const auto answer = answered<wire::TokensReply>();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ((std::vector<TokenId>{5, 6}), answer->token_ids);
  EXPECT_EQ(2u, answer->n_tokens);
  EXPECT_EQ(0u, questions.size());
}

TEST_F(TokenQuestionsTest, WhichModelIsMeantIsDecidedWhenAllHaveRegistered) {
  pool.begin(now, seconds(3));
  join(kFirst, wire::Role::kTokenizer, "m");
  submit(tokenize());
  submit(tokenize("n"), {0, 98}, kFlow + 1);
  for (int i = 0; i < 6; ++i) pool.count_silence(now += milliseconds(i < 5 ? 500 : 499));
  EXPECT_LE(questions.tick(now, out), now + milliseconds(1));
  EXPECT_TRUE(out.empty());
  pool.count_silence(now += milliseconds(1));
  questions.tick(now, out);
  ASSERT_EQ(2u, out.size());
  EXPECT_EQ("model_not_found",
            std::get<wire::ClientError>(std::get<ToClient>(out[0]).answer).error.code);
  EXPECT_EQ(1, n_asked<wire::Encode>());
}

TEST_F(TokenQuestionsTest, TokensAreCheckedThenDecodedInOneFinalPiece) {
  join(kFirst, wire::Role::kTokenizer, "m");
  submit(detokenize());
  ASSERT_EQ((std::vector<TokenId>{5, 6}), asked<wire::Encode>()->second.tokens);
  questions.on_message(kOwn, wire::Encoded{.tokens = {5, 6}}, now, out);
  const auto decode = asked<wire::Decode>();
  ASSERT_TRUE(decode.has_value());
  EXPECT_TRUE(decode->second.final);
  EXPECT_EQ((std::vector<TokenId>{5, 6}), decode->second.ids);
  questions.on_message(kOwn, wire::Text{.text = "hi", .final = true}, now, out);
  EXPECT_EQ("hi", answered<wire::TokensReply>()->text);
  submit(detokenize());
  questions.on_message(
      kOwn, wire::Failed{.code = ErrorCode::kInvalidValue, .message = "no", .param = "token_ids"},
      now, out);
  EXPECT_EQ("token_ids", answered<wire::ClientError>()->error.param);
}

TEST_F(TokenQuestionsTest, ALostQuestionGoesToAnotherAndEndsInTime) {
  join(kFirst, wire::Role::kTokenizer, "m");
  join(kSecond, wire::Role::kTokenizer, "m");
  submit(tokenize());
  EXPECT_EQ(kFirst, asked<wire::Encode>()->first);
  EXPECT_EQ(now + milliseconds(500), questions.tick(now, out));
  now += milliseconds(500);
  questions.tick(now, out);
  EXPECT_EQ(kSecond, asked<wire::Encode>()->first);
  pool.end(kSecond, Incarnation{1});
  questions.worker_lost(kSecond, now, out);
  EXPECT_EQ(kFirst, asked<wire::Encode>()->first);
  for (int i = 0; i < 19; ++i) questions.tick(now += milliseconds(500), out);
  EXPECT_EQ("unavailable", answered<wire::ClientError>()->error.code);
  EXPECT_EQ(0u, questions.size());
}

TEST_F(TokenQuestionsTest, IsBoundedAndForgetsClientsThatAreGone) {
  join(kFirst, wire::Role::kTokenizer, "m");
  for (std::uint64_t i = 0; i < 3; ++i) submit(tokenize(), {1, i}, i);
  EXPECT_EQ(2u, questions.size());
  EXPECT_EQ("queue_full", answered<wire::ClientError>()->error.code);
  questions.client_gone({.socket = 2, .routing = "c"}, now, out);
  EXPECT_EQ(0u, questions.size());
}

TEST_F(TokenQuestionsTest, ATextOfMoreThanOneStringIsRefused) {
  join(kFirst, wire::Role::kTokenizer, "m");
  submit(detokenize());
  questions.on_message(kOwn, wire::Encoded{.tokens = {5, 6}}, now, out);
  questions.on_message(kOwn, wire::Text{.text = "half"}, now, out);
  const auto error = answered<wire::ClientError>();
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ("invalid_value", error->error.code);
  EXPECT_EQ("token_ids", error->error.param);
  EXPECT_EQ(0u, questions.size());
}

TEST_F(TokenQuestionsTest, AsksAgainLaterAndLater) {
  join(kFirst, wire::Role::kTokenizer, "m");
  submit(tokenize());
  for (const int silence : {500, 1000, 2000, 4000}) {
    EXPECT_EQ(now + milliseconds(silence), questions.tick(now, out));
    out.clear();
    questions.tick(now += milliseconds(silence), out);
    EXPECT_TRUE(asked<wire::Encode>().has_value()) << silence;
  }
}

TEST_F(TokenQuestionsTest, HoldsSoManyBytesAndNoMore) {
  join(kFirst, wire::Role::kTokenizer, "m");
  TokenQuestions few{pool, {.max_bytes = 14}};
  const Peer client{.socket = 2, .routing = "c"};
  few.submit(client, kFlow, kAskedId, {1, 1}, tokenize(), now, out);
  EXPECT_FALSE(answered<wire::ClientError>().has_value());
  few.submit(client, kFlow, kAskedId, {1, 2}, tokenize(), now, out);
  EXPECT_EQ("queue_full", answered<wire::ClientError>()->error.code);
  few.on_message({1, 1}, wire::Encoded{.tokens = {5}}, now, out);
  // The first is over and holds nothing.
  few.submit(client, kFlow, kAskedId, {1, 3}, tokenize(), now, out);
  EXPECT_FALSE(answered<wire::ClientError>().has_value());
}

TEST_F(TokenQuestionsTest, OneClientHoldsAsMuchAsIsFreeAndAnotherFindsRoom) {
  join(kFirst, wire::Role::kTokenizer, "m");
  TokenQuestions many{pool, {.max_open = 8}};
  const auto refused = [&](FlowId flow, std::uint64_t n) {
    many.submit({.socket = 2, .routing = "c"}, flow, kAskedId, {flow, n}, tokenize(), now, out);
    return answered<wire::ClientError>();
  };
  for (std::uint64_t n = 0; n < 4; ++n) EXPECT_FALSE(refused(1, n).has_value()) << n;
  const auto error = refused(1, 4);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ("queue_full", error->error.code);
  EXPECT_GT(error->error.retry_after_ms, 0u);
  EXPECT_NE(std::string::npos, error->error.message.find("of this tenant or connection 4"))
      << error->error.message;
  EXPECT_FALSE(refused(2, 0).has_value());
}

TEST_F(TokenQuestionsTest, AClientHasFewAtATokenizerAndClientsTakeTurns) {
  join(kFirst, wire::Role::kTokenizer, "m");
  TokenQuestions many{pool, {.max_asked = 2}};
  const auto ask = [&](FlowId flow, std::uint64_t n) {
    many.submit({.socket = 2, .routing = "c"}, flow, kAskedId, {flow, n}, tokenize(), now, out);
  };
  for (std::uint64_t n = 0; n < 6; ++n) ask(1, n);
  EXPECT_EQ(2, n_asked<wire::Encode>());
  ask(2, 0);
  EXPECT_EQ(1, n_asked<wire::Encode>()) << "another does not wait behind them";
  many.on_message({1, 0}, wire::Encoded{.tokens = {5}}, now, out);
  EXPECT_EQ(1, n_asked<wire::Encode>()) << "the next of the first takes the place";
  EXPECT_EQ(6u, many.size());
}

TEST_F(TokenQuestionsTest, ALargeQuestionGoesAloneAndNotNever) {
  join(kFirst, wire::Role::kTokenizer, "m");
  TokenQuestions many{pool, {.max_asked_bytes = 4}};
  for (std::uint64_t n = 0; n < 3; ++n)
    many.submit({.socket = 2, .routing = "c"}, 1, kAskedId, {1, n}, tokenize(), now, out);
  EXPECT_EQ(1, n_asked<wire::Encode>());
  many.on_message({1, 0}, wire::Encoded{.tokens = {5}}, now, out);
  EXPECT_EQ(1, n_asked<wire::Encode>());
}

TEST_F(TokenQuestionsTest, OneThatIsInAQueueIsNotAskedAgainAndAgain) {
  join(kFirst, wire::Role::kTokenizer, "m");
  join(kSecond, wire::Role::kTokenizer, "m");
  submit(tokenize());
  EXPECT_EQ(1, n_asked<wire::Encode>());
  questions.on_message(kOwn, wire::Opened{.n_waiting = 24}, now, out);
  // Half a second for each two before it, and four seconds.
  EXPECT_EQ(now + seconds(10), questions.tick(now, out));
  questions.tick(now += milliseconds(9999), out);
  EXPECT_EQ(0, n_asked<wire::Encode>());
  questions.tick(now += milliseconds(1), out);
  const auto again = asked<wire::Encode>();
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(kFirst, again->first) << "it has it: another would begin anew";
  // It says nothing more: the other one, and the first gets a CLOSE.
  questions.tick(now += seconds(4), out);
  std::vector<WorkerId> told, asked_of;
  for (const Action& action : std::exchange(out, {}))
    if (const auto* to = std::get_if<ToWorker>(&action))
      (std::holds_alternative<wire::StreamClose>(to->message) ? told : asked_of)
          .push_back(to->worker);
  EXPECT_EQ(std::vector<WorkerId>{kFirst}, told);
  EXPECT_EQ(std::vector<WorkerId>{kSecond}, asked_of);
}

TEST_F(TokenQuestionsTest, AFullTokenizerIsAskedWhenItSaid) {
  join(kFirst, wire::Role::kTokenizer, "m");
  submit(tokenize());
  out.clear();
  for (int i = 0; i < 30; ++i) {  // longer than the patience with one that says nothing
    questions.on_message(kOwn, wire::Busy{.retry_after_ms = 700}, now, out);
    questions.tick(now += milliseconds(699), out);
    EXPECT_EQ(0, n_asked<wire::Encode>());
    questions.tick(now += milliseconds(1), out);
    EXPECT_EQ(1, n_asked<wire::Encode>());
  }
  EXPECT_EQ(1u, questions.size());
}

// Each cycle the tokenizer has the prompt and says nothing more, as when it was started again.
TEST_F(TokenQuestionsTest, ALostQuestionIsAskedAgainSoonHoweverOftenItWasAsked) {
  join(kFirst, wire::Role::kTokenizer, "m");
  submit(tokenize());
  out.clear();
  for (int i = 0; i < 50; ++i) {
    questions.on_message(kOwn, wire::Opened{}, now, out);
    questions.tick(now += seconds(4), out);
    ASSERT_EQ(1, n_asked<wire::Encode>()) << i;
  }
  questions.tick(now += milliseconds(500), out);  // the last one is lost
  EXPECT_EQ(1, n_asked<wire::Encode>());
  EXPECT_EQ(1u, questions.size());
}

TEST_F(TokenQuestionsTest, ATokenizerHearsThatAQuestionHasEnded) {
  join(kFirst, wire::Role::kTokenizer, "m");
  submit(tokenize());
  out.clear();
  questions.client_gone({.socket = 2, .routing = "c"}, now, out);
  EXPECT_EQ(1, n_asked<wire::StreamClose>());
  auto urgent = tokenize();
  urgent.timeout_ms = 50;
  submit(std::move(urgent));
  questions.on_message(kOwn, wire::Opened{}, now, out);
  out.clear();
  questions.tick(now += milliseconds(50), out);
  int closes = 0;
  std::string code;
  for (const Action& action : std::exchange(out, {})) {
    if (const auto* to = std::get_if<ToWorker>(&action))
      closes += std::holds_alternative<wire::StreamClose>(to->message) ? 1 : 0;
    if (const auto* to = std::get_if<ToClient>(&action))
      if (const auto* error = std::get_if<wire::ClientError>(&to->answer)) code = error->error.code;
  }
  EXPECT_EQ(1, closes);
  EXPECT_EQ("deadline_exceeded", code);
}

TEST_F(TokenQuestionsTest, OnlyWhoWasAskedAnswers) {
  join(kFirst, wire::Role::kTokenizer, "m");
  join(kSecond, wire::Role::kTokenizer, "m");
  submit(tokenize());
  ASSERT_EQ(kFirst, asked<wire::Encode>()->first);
  EXPECT_TRUE(questions.is_mine(kFirst, kOwn));
  EXPECT_FALSE(questions.is_mine(kSecond, kOwn));
}

TEST_F(TokenQuestionsTest, AQuestionThatCannotBeAskedEnds) {
  join(kFirst, wire::Role::kTokenizer, "m");
  submit(tokenize());
  questions.give_up({1, 1}, {ErrorCode::kInternal, "another"}, now, out);
  EXPECT_EQ(1u, questions.size());
  questions.give_up(kOwn, {ErrorCode::kInternal, "too large"}, now, out);
  EXPECT_EQ("internal", answered<wire::ClientError>()->error.code);
  EXPECT_EQ(0u, questions.size());
}

TEST_F(TokenQuestionsTest, AnUnknownModelIsRefusedAndNoTokenizerIsAsked) {
  join(kFirst, wire::Role::kTokenizer, "m");
  join(kLoneTarget, wire::Role::kTarget, "m");
  submit(tokenize("other"));
  EXPECT_EQ("model", answered<wire::ClientError>()->error.param);
  submit(tokenize("m"));
  EXPECT_TRUE(asked<wire::Encode>().has_value());
}

TEST_F(TokenQuestionsTest, TheOnlyConfiguredModelNeedNotWaitForOthersToRegister) {
  pool.begin(now, seconds(3));
  join(kFirst, wire::Role::kTokenizer, "m");
  join(kLoneTarget, wire::Role::kTarget, "m");
  TokenQuestions of_another{pool, {.only_model = "n"}};
  of_another.submit({.socket = 2, .routing = "c"}, kFlow, kAskedId, kOwn, tokenize(), now, out);
  EXPECT_FALSE(asked<wire::Encode>().has_value());
  TokenQuestions of_one{pool, {.only_model = "m"}};
  of_one.submit({.socket = 2, .routing = "c"}, kFlow, kAskedId, kOwn, tokenize(), now, out);
  EXPECT_TRUE(asked<wire::Encode>().has_value());
}

TEST_F(TokenQuestionsTest, TheOnlyTokenizerOfAModelIsAskedWhileItDrains) {
  join(kFirst, wire::Role::kTokenizer, "m");
  join(kSecond, wire::Role::kTokenizer, "n", 11);
  drains(kFirst);
  submit(tokenize("m"));  // there is no target: the tokenizers say which models there are
  EXPECT_EQ(kFirst, encoding().value_or(WorkerId{}));
  join(kLoneTarget, wire::Role::kTarget, "m");
  submit(tokenize(), {0, 100}, kFlow + 1);
  EXPECT_EQ(kFirst, encoding().value_or(WorkerId{}));
}

TEST_F(TokenQuestionsTest, ATokenizerThatDrainsIsNeededByTheQuestionsThatItWouldBeGiven) {
  join(kFirst, wire::Role::kTokenizer, "m");
  join(kSecond, wire::Role::kTokenizer, "n", 11);
  join(kLoneTarget, wire::Role::kTarget, "m");
  drains(kFirst);
  drains(kSecond);
  EXPECT_FALSE(questions.needs(kFirst, now));
  TokenQuestions many{pool, {.max_asked = 1}};
  const auto ask = [&](std::uint64_t n) {
    many.submit({.socket = 2, .routing = "c"}, kFlow, kAskedId, {1, n}, tokenize(), now, out);
  };
  ask(0);
  ask(1);  // it waits for its client's turn
  EXPECT_TRUE(many.needs(kFirst, now));
  EXPECT_FALSE(many.needs(kSecond, now)) << "it is of another model";
  const WorkerId next{4};
  join(next, wire::Role::kTokenizer, "m");
  many.on_message({1, 0}, wire::Encoded{.tokens = {5}}, now, out);
  ask(2);
  EXPECT_FALSE(many.needs(kFirst, now)) << "another one of the model is ready";
  EXPECT_TRUE(many.needs(next, now));
}

TEST_F(TokenQuestionsTest, WithoutANameAndSeveralModelsItIsRefusedWithTheNames) {
  join(kFirst, wire::Role::kTokenizer, "m");
  const auto join_target = [&](WorkerId id, const std::string& model, Fingerprint of_model) {
    wire::Header header;
    header.sender = id;
    header.incarnation = Incarnation{1};
    pool.hello(header, {.socket = 1, .routing = model},
               {.role = wire::Role::kTarget,
                .name = model + "-0",
                .fingerprints = {1, 2, of_model, 4},
                .model_name = model},
               now);
  };
  join_target(kLoneTarget, "m", 3);
  join_target(WorkerId{4}, "n", 33);
  submit(tokenize());
  const auto error = answered<wire::ClientError>();
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ("invalid_value", error->error.code);
  EXPECT_NE(std::string::npos, error->error.message.find("m, n")) << error->error.message;
  submit(tokenize("n"), {0, 100});
  EXPECT_TRUE(asked<wire::Encode>().has_value());
  submit(tokenize("default"), {0, 101});
  EXPECT_TRUE(answered<wire::ClientError>().has_value());
  TokenQuestions with_default{pool, {.default_model = "m"}};
  with_default.submit({.socket = 2, .routing = "c"}, kFlow, kAskedId, kOwn, tokenize(), now, out);
  EXPECT_TRUE(asked<wire::Encode>().has_value());
}

}  // namespace
}  // namespace foretoken
