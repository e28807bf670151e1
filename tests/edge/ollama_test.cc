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
  status.model_states = {{.name = "a"}, {.name = "b", .aliases = {"small"}}};
  const auto shown = ollama_show(status, "small", 0);
  ASSERT_TRUE(shown.ok());
  EXPECT_EQ((*shown)["details"]["quantization_level"], "int8");
  EXPECT_EQ((*shown)["model_info"]["foretoken.context_length"], 200);
  EXPECT_EQ(ollama_ps(status, 0)["models"][2]["context_length"], 200);
  status.services.pop_back();  // b's target: another one's facts are not shown for it
  EXPECT_EQ(ollama_ps(status, 0)["models"][2]["context_length"], 0);
}

}  // namespace
}  // namespace foretoken::edge
