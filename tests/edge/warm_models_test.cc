// What /health answers of several models, from the answers that they gave.
#include "services/edge/warm_models.h"

#include <gmock/gmock.h>

#include <string>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/wire/client_codec.h"
#include "services/edge/health_reply.h"

namespace foretoken::edge {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

wire::StatusReply status_of(std::vector<wire::ModelStatus> models) {
  wire::StatusReply status;
  status.model_states = std::move(models);
  for (const auto& model : status.model_states) status.ready = status.ready || model.ready;
  return status;
}

wire::ModelStatus model_of(const char* name, bool ready) {
  return {.name = name, .n_targets = ready ? 1u : 0u, .ready = ready};
}

bool answers(WarmModels& models, const std::string& name) {
  const wire::ClientAnswer reply = wire::ClientReply{};
  return models.note(name, &reply);
}

bool fails(WarmModels& models, const std::string& name, const Error& error) {
  const wire::ClientAnswer answer = wire::client_error(RequestId{}, error, 0);
  return !models.note(name, &answer);
}

TEST(WarmModels, OneModelThatCannotAnswerKeepsNoOtherBack) {
  WarmModels models;
  const auto status = status_of({model_of("bad", true), model_of("good", true)});
  EXPECT_FALSE(models.is_ready(status));
  EXPECT_THAT(models.to_ask(status), ElementsAre("bad", "good"));
  EXPECT_THAT(models.to_ask(status), IsEmpty()) << "both are being asked";
  EXPECT_TRUE(fails(models, "bad", {ErrorCode::kOutOfMemory, "out of memory"}));
  EXPECT_FALSE(models.is_ready(status));
  EXPECT_TRUE(answers(models, "good"));
  EXPECT_TRUE(models.is_ready(status));
  EXPECT_THAT(models.not_ready(status), ElementsAre("bad"));
  EXPECT_THAT(models.to_ask(status), ElementsAre("bad")) << "it may answer another time";
  EXPECT_TRUE(answers(models, "bad"));
  EXPECT_THAT(models.to_ask(status), IsEmpty());
  EXPECT_THAT(models.not_ready(status), IsEmpty());
}

TEST(WarmModels, OneThatHasAnsweredMustStillBeThere) {
  WarmModels models;
  const auto before = status_of({model_of("a", true)});
  (void)models.to_ask(before);
  EXPECT_TRUE(answers(models, "a"));
  EXPECT_TRUE(models.is_ready(before));
  const auto after = status_of({model_of("a", false), model_of("b", true)});
  EXPECT_FALSE(models.is_ready(after)) << "b has not answered";
  EXPECT_THAT(models.not_ready(after), ElementsAre("a", "b"));
}

std::string reason_of(const WarmModels& models, const wire::StatusReply& status) {
  const WarmModels::Reason reason = models.why_not_ready(status);
  return std::string(name_of(reason.state)) + ": " + reason.sentence;
}

TEST(WarmModels, TheReasonIsThatOfTheModelThatFails) {
  WarmModels models;
  const auto loading = status_of({model_of("a", false)});
  EXPECT_EQ(reason_of(models, loading), "loading: the models are being loaded");
  const auto ready = status_of({model_of("a", true), model_of("b", false)});
  (void)models.to_ask(ready);
  EXPECT_EQ(reason_of(models, ready), "loading: the first token of model a is awaited");
  EXPECT_TRUE(fails(models, "a", {ErrorCode::kInternal, "logits are not finite"}));
  EXPECT_EQ(reason_of(models, ready), "failing: model a does not answer: logits are not finite");
  (void)models.to_ask(ready);
  EXPECT_EQ(reason_of(models, ready), "failing: model a does not answer: logits are not finite")
      << "while it is asked again";
  EXPECT_EQ(reason_of(models, loading), "loading: the models are being loaded")
      << "its target has gone";
  EXPECT_TRUE(answers(models, "a"));
  EXPECT_TRUE(models.is_ready(ready));
}

TEST(WarmModels, AModelThatIsAskedAgainIsAwaited) {
  WarmModels models;
  const auto status = status_of({model_of("a", true)});
  for (const ErrorCode passing :
       {ErrorCode::kQueueFull, ErrorCode::kDraining, ErrorCode::kUnavailable}) {
    EXPECT_TRUE(fails(models, "a", {ErrorCode::kInternal, "logits are not finite"}));
    EXPECT_TRUE(fails(models, "a", {passing, "no place"}));
    EXPECT_EQ(reason_of(models, status), "loading: the first token of model a is awaited: no place")
        << error_code_name(passing);
  }
  for (const ErrorCode lasting : {ErrorCode::kDeadlineExceeded, ErrorCode::kOutOfMemory}) {
    EXPECT_TRUE(fails(models, "a", {lasting, "cannot"}));
    EXPECT_EQ(reason_of(models, status), "failing: model a does not answer: cannot")
        << error_code_name(lasting);
  }
}

TEST(WarmModels, AnAnswerThatIsNoReplyIsNoToken) {
  WarmModels models;
  const auto status = status_of({model_of("a", true)});
  EXPECT_FALSE(models.note("a", nullptr));
  EXPECT_EQ(reason_of(models, status), "failing: model a does not answer: no answer came");
  const wire::ClientAnswer text = wire::MetricsText{};
  EXPECT_FALSE(models.note("a", &text));
  EXPECT_FALSE(models.is_ready(status));
}

TEST(HealthReply, HasTheStateAndACodeOfItsOwn) {
  WarmModels models;
  const auto status = status_of({model_of("a", true)});
  const auto expect = [](const WarmModels::Reason& reason, const char* state, const char* code) {
    const HttpReply reply = unhealthy_reply(reason, {{"x-request-id", "1"}});
    const Json body = Json::parse(reply.body);
    EXPECT_EQ(reply.status, 503u);
    EXPECT_EQ(body["status"].get<std::string>(), state);
    EXPECT_EQ(body["error"]["code"].get<std::string>(), code);
    EXPECT_EQ(body["error"]["message"].get<std::string>(), reason.sentence);
    EXPECT_THAT(reply.headers, Contains(Pair("x-request-id", "1")));
    EXPECT_THAT(reply.headers, Contains(Pair("Retry-After", "1")));
  };
  expect(models.why_not_ready(status), "loading", "model_loading");
  EXPECT_TRUE(fails(models, "a", {ErrorCode::kInternal, "logits are not finite"}));
  expect(models.why_not_ready(status), "failing", "model_failing");
  expect({UnreadyState::kDraining, "the edge is about to stop"}, "draining", "draining");
}

}  // namespace
}  // namespace foretoken::edge
