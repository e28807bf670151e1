// What /health says of several models.
#include "services/edge/warm_models.h"

#include <gmock/gmock.h>

namespace foretoken::edge {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

wire::StatusReply status_of(std::vector<wire::ModelStatus> models) {
  wire::StatusReply status;
  status.model_states = std::move(models);
  for (const auto& model : status.model_states) status.ready = status.ready || model.ready;
  return status;
}

wire::ModelStatus model_of(const char* name, bool ready) {
  return {.name = name, .n_targets = ready ? 1u : 0u, .ready = ready};
}

TEST(WarmModels, OneModelThatCannotAnswerKeepsNoOtherBack) {
  WarmModels models;
  const auto status = status_of({model_of("bad", true), model_of("good", true)});
  EXPECT_FALSE(models.is_ready(status));
  EXPECT_THAT(models.to_ask(status), ElementsAre("bad", "good"));
  EXPECT_THAT(models.to_ask(status), IsEmpty()) << "both are being asked";
  models.note("bad", "out of memory");
  EXPECT_FALSE(models.is_ready(status));
  models.note("good", {});
  EXPECT_TRUE(models.is_ready(status));
  EXPECT_THAT(models.not_ready(status), ElementsAre("bad"));
  EXPECT_THAT(models.to_ask(status), ElementsAre("bad")) << "it may answer another time";
  models.note("bad", {});
  EXPECT_THAT(models.to_ask(status), IsEmpty());
  EXPECT_THAT(models.not_ready(status), IsEmpty());
}

TEST(WarmModels, OneThatHasAnsweredMustStillBeThere) {
  WarmModels models;
  const auto before = status_of({model_of("a", true)});
  (void)models.to_ask(before);
  models.note("a", {});
  EXPECT_TRUE(models.is_ready(before));
  const auto after = status_of({model_of("a", false), model_of("b", true)});
  EXPECT_FALSE(models.is_ready(after)) << "b has not answered";
  EXPECT_THAT(models.not_ready(after), ElementsAre("a", "b"));
}

std::string reason_of(const WarmModels& models, const wire::StatusReply& status) {
  const WarmModels::Reason reason = models.why_not_ready(status);
  return std::string(reason.state) + ": " + reason.sentence;
}

TEST(WarmModels, TheReasonIsThatOfTheModelThatFails) {
  WarmModels models;
  const auto loading = status_of({model_of("a", false)});
  EXPECT_EQ(reason_of(models, loading), "loading: the models are being loaded");
  const auto ready = status_of({model_of("a", true), model_of("b", false)});
  (void)models.to_ask(ready);
  EXPECT_EQ(reason_of(models, ready), "loading: the first token of model a is awaited");
  models.note("a", "logits are not finite");
  EXPECT_EQ(reason_of(models, ready), "failing: model a does not answer: logits are not finite");
  (void)models.to_ask(ready);
  EXPECT_EQ(reason_of(models, ready), "failing: model a does not answer: logits are not finite")
      << "while it is asked again";
  EXPECT_EQ(reason_of(models, loading), "loading: the models are being loaded")
      << "its target has gone";
  models.note("a", {});
  EXPECT_TRUE(models.is_ready(ready));
}

}  // namespace
}  // namespace foretoken::edge
