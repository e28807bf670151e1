// What Ollama's clients read of the models.
#include "services/edge/ollama.h"

#include <gmock/gmock.h>

namespace foretoken::edge {
namespace {

wire::ServiceStatus target_of_model(const char* model, const char* dtype, std::uint32_t max_len) {
  wire::ServiceStatus target;
  target.role = "target";
  target.state = "ready";
  target.model = model;
  target.dtype = dtype;
  target.max_model_len = max_len;
  return target;
}

TEST(Ollama, AnAliasShowsTheFactsOfItsOwnModel) {
  wire::StatusReply status;
  status.models = {"a", "b", "small"};
  status.services = {target_of_model("a", "float32", 100), target_of_model("b", "int8", 200)};
  status.model_states = {{.name = "a", .n_targets = 1},
                         {.name = "b", .aliases = {"small", "claude-*"}, .n_targets = 1}};
  const auto shown = ollama_show(status, "small", 0);
  ASSERT_TRUE(shown.ok());
  EXPECT_EQ((*shown)["details"]["quantization_level"], "int8");
  EXPECT_EQ((*shown)["model_info"]["foretoken.context_length"], 200);
  EXPECT_TRUE(ollama_show(status, "claude-x", 0).ok());
  EXPECT_FALSE(ollama_show(status, "other", 0).ok());
  EXPECT_EQ(ollama_ps(status, 0)["models"][2]["context_length"], 200);
  status.services.pop_back();  // b's target: another one's facts are not shown for it
  EXPECT_EQ(ollama_ps(status, 0)["models"][2]["context_length"], 0);
}

TEST(Ollama, AModelWhoseCallsAreReadHasTools) {
  wire::StatusReply status;
  status.models = {"a", "b", "small"};
  status.model_states = {{.name = "a", .n_targets = 1},
                         {.name = "b", .aliases = {"small", "claude-*"}, .n_targets = 1}};
  wire::ServiceStatus tokenizer = target_of_model("b", "", 0);
  tokenizer.role = "tokenizer";
  tokenizer.tool_format = "hermes";
  status.services = {target_of_model("a", "float32", 100), tokenizer};
  const auto capabilities = [&](const char* model) {
    const auto shown = ollama_show(status, model, 0);
    return shown.ok() ? shown->at("capabilities") : Json();
  };
  EXPECT_EQ(capabilities("b"), Json::array({"completion", "tools"}));
  EXPECT_EQ(capabilities("small"), Json::array({"completion", "tools"}));
  EXPECT_EQ(capabilities("a"), Json::array({"completion"}));
  status.services[1].tool_format = "none";
  EXPECT_EQ(capabilities("b"), Json::array({"completion"}));
  status.services[1].tool_format = "hermes";
  status.services[1].state = "gone";
  EXPECT_EQ(capabilities("b"), Json::array({"completion"}));
}

}  // namespace
}  // namespace foretoken::edge
