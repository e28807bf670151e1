#include "services/router/token_questions.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace foretoken {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr WorkerId kFirst{1}, kSecond{2}, kLoneTarget{3};
constexpr RequestId kAskedId{0, 7}, kOwn{0, 99};

class TokenQuestionsTest : public testing::Test {
 protected:
  void join(WorkerId id, wire::Role role, const std::string& model) {
    wire::Header header;
    header.sender = id;
    header.incarnation = Incarnation{1};
    pool.hello(header, {.socket = 1, .routing = std::to_string(id.value)},
               {.role = role,
                .name = "w" + std::to_string(id.value),
                .fingerprints = {1, 2, 3, 4},
                .model_name = model},
               now);
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
  void submit(wire::ClientRequest request, RequestId own = kOwn) {
    questions.submit({.socket = 2, .routing = "c"}, kAskedId, own, std::move(request), now, out);
  }
  // The one message to a worker, and to whom.
  template <class M>
  std::optional<std::pair<WorkerId, M>> asked() {
    for (const Action& action : std::exchange(out, {}))
      if (const auto* to = std::get_if<ToWorker>(&action))
        if (const auto* message = std::get_if<M>(&to->message)) return {{to->worker, *message}};
    return std::nullopt;
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
  EXPECT_EQ("token_ids", answered<wire::ClientError>()->param);
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
  EXPECT_EQ("unavailable", answered<wire::ClientError>()->code);
  EXPECT_EQ(0u, questions.size());
}

TEST_F(TokenQuestionsTest, IsBoundedAndForgetsClientsThatAreGone) {
  join(kFirst, wire::Role::kTokenizer, "m");
  for (std::uint64_t i = 0; i < 3; ++i) submit(tokenize(), {1, i});
  EXPECT_EQ(2u, questions.size());
  EXPECT_EQ("queue_full", answered<wire::ClientError>()->code);
  questions.client_gone({.socket = 2, .routing = "c"});
  EXPECT_EQ(0u, questions.size());
}

TEST_F(TokenQuestionsTest, ATextOfMoreThanOneStringIsRefused) {
  join(kFirst, wire::Role::kTokenizer, "m");
  submit(detokenize());
  questions.on_message(kOwn, wire::Encoded{.tokens = {5, 6}}, now, out);
  questions.on_message(kOwn, wire::Text{.text = "half"}, now, out);
  const auto error = answered<wire::ClientError>();
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ("invalid_value", error->code);
  EXPECT_EQ("token_ids", error->param);
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
  TokenQuestions few{pool, {.max_bytes = 9}};
  const Peer client{.socket = 2, .routing = "c"};
  few.submit(client, kAskedId, {1, 1}, tokenize(), now, out);
  EXPECT_FALSE(answered<wire::ClientError>().has_value());
  few.submit(client, kAskedId, {1, 2}, tokenize(), now, out);
  EXPECT_EQ("queue_full", answered<wire::ClientError>()->code);
  few.on_message({1, 1}, wire::Encoded{.tokens = {5}}, now, out);
  // The first is over and holds nothing.
  few.submit(client, kAskedId, {1, 3}, tokenize(), now, out);
  EXPECT_FALSE(answered<wire::ClientError>().has_value());
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
  questions.give_up({1, 1}, {ErrorCode::kInternal, "another"}, out);
  EXPECT_EQ(1u, questions.size());
  questions.give_up(kOwn, {ErrorCode::kInternal, "too large"}, out);
  EXPECT_EQ("internal", answered<wire::ClientError>()->code);
  EXPECT_EQ(0u, questions.size());
}

TEST_F(TokenQuestionsTest, AnUnknownModelIsRefusedAndNobodyIsAsked) {
  join(kFirst, wire::Role::kTokenizer, "m");
  join(kLoneTarget, wire::Role::kTarget, "m");
  submit(tokenize("other"));
  EXPECT_EQ("model", answered<wire::ClientError>()->param);
  submit(tokenize("m"));
  EXPECT_TRUE(asked<wire::Encode>().has_value());
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
  EXPECT_EQ("invalid_value", error->code);
  EXPECT_NE(std::string::npos, error->message.find("m, n")) << error->message;
  submit(tokenize("n"), {0, 100});
  EXPECT_TRUE(asked<wire::Encode>().has_value());
  TokenQuestions with_default{pool, {.default_model = "m"}};
  with_default.submit({.socket = 2, .routing = "c"}, kAskedId, kOwn, tokenize(), now, out);
  EXPECT_TRUE(asked<wire::Encode>().has_value());
}

}  // namespace
}  // namespace foretoken
