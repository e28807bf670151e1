// Anthropic's bodies: what reaches the router's chat template.
#include <gmock/gmock.h>

#include "services/edge/anthropic.h"

namespace foretoken::edge {
namespace {

using ::testing::ElementsAre;

OrderedJson body_with(const std::string& messages, const std::string& more = "") {
  return OrderedJson::parse(R"({"model": "demo", "max_tokens": 5, "messages": [)" + messages + "]" +
                            more + "}");
}

AnthropicAsk asked(const OrderedJson& body) {
  auto ask = read_messages(body, false);
  EXPECT_TRUE(ask.ok()) << (ask.ok() ? "" : ask.error().message);
  return ask.ok() ? std::move(*ask) : AnthropicAsk{};
}

const char* const kUser = R"({"role": "user", "content": "hi"})";

TEST(AnthropicMessages, ResultsOfToolsAreTurnsBeforeTheText) {
  const auto ask = asked(body_with(
      R"({"role": "user", "content": "hi"},
         {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"},
           {"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "ok"},
           {"type": "tool_use", "id": "t1", "name": "f", "input": {"b": 1, "a": 2}},
           {"type": "tool_use", "id": "t2", "name": "g", "input": {}}]},
         {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "3"},
           {"type": "tool_result", "tool_use_id": "t2", "is_error": true,
            "content": [{"type": "text", "text": "no"}]}, {"type": "text", "text": "and?"}]})"));
  ASSERT_EQ(ask.generation.choices.size(), 1U);
  EXPECT_THAT(
      ask.generation.choices[0].messages,
      ElementsAre(
          wire::ChatMessage{"user", "hi"},
          wire::ChatMessage{
              "assistant",
              "ok",
              {R"({"reasoning_content":"hm","tool_calls":[{"id":"t1","type":"function","function":{"name":"f","arguments":{"b":1,"a":2}}},{"id":"t2","type":"function","function":{"name":"g","arguments":{}}}]})"}},
          wire::ChatMessage{"tool", "3", {R"({"tool_call_id":"t1"})"}},
          wire::ChatMessage{"tool", "Error: no", {R"({"tool_call_id":"t2"})"}},
          wire::ChatMessage{"user", "and?"}));
  EXPECT_FALSE(ask.generation.choices[0].continue_final_message);
}

TEST(AnthropicMessages, AnAnswerThatEndsWithTheContextSaysSo) {
  const auto ask = asked(body_with(kUser));
  ASSERT_EQ(ask.generation.choices.size(), 1U);
  EXPECT_TRUE(ask.generation.choices[0].fit_max_tokens);
  const auto reason = [&](const char* finish_reason, std::uint32_t n_tokens) {
    wire::ClientReply reply;
    reply.finish_reason = finish_reason;
    reply.usage.completion_tokens = n_tokens;
    return parse_json(message_encoder(ask, "1", "2")->whole({reply}))->at("stop_reason");
  };
  EXPECT_EQ("max_tokens", reason("length", 5));
  EXPECT_EQ("model_context_window_exceeded", reason("length", 4));
  EXPECT_EQ("end_turn", reason("stop", 4));
}

TEST(AnthropicMessages, ALastMessageOfTheAssistantIsContinued) {
  const auto ask =
      asked(body_with(std::string(kUser) + R"(, {"role": "assistant", "content": "Well"})"));
  EXPECT_TRUE(ask.generation.choices[0].continue_final_message);
}

TEST(AnthropicMessages, ToolsThinkingAndChoiceReachTheTemplate) {
  const auto ask = asked(
      body_with(kUser,
                R"(, "tools": [{"name": "f", "input_schema": {"type": "object"}, "strict": true},
           {"type": "web_search_20250305", "name": "web_search"}],
         "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": true},
         "thinking": {"type": "enabled", "budget_tokens": 1024, "display": "omitted"},
         "output_config": {"effort": "low"})"));
  const auto& request = ask.generation.choices[0];
  EXPECT_EQ(request.tools.text,
            R"([{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}])");
  EXPECT_EQ(request.tool_choice, ToolChoice::kRequired);
  EXPECT_EQ(request.tool_name, "f");
  EXPECT_TRUE(ask.rules.may_call && ask.rules.one_call && ask.hides_thoughts);
  EXPECT_EQ(request.chat_template_kwargs.text,
            R"({"enable_thinking":true,"reasoning_effort":"low"})");
  EXPECT_THAT(ask.ignored, ElementsAre("tools.0.strict", "tools.1", "thinking.budget_tokens"));
}

TEST(AnthropicMessages, RefusesByPlace) {
  for (
      const auto& [body, param] : {
          std::pair{body_with(R"({"role": "user", "content": [{"type": "image"}]})"),
                    "messages.0.content.0"},
          std::pair{body_with(R"({"role": "user", "content": [{"type": "tool_use"}]})"),
                    "messages.0.content.0"},
          std::pair{
              body_with(
                  R"({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x"}]})"),
              "messages.0.content.0.tool_use_id"},
          std::pair{
              body_with(
                  R"({"role": "assistant", "content": [{"type": "tool_use", "id": "x", "name": "f"}]})"),
              "messages.0.content.0"},
          std::pair{body_with(kUser, R"(, "tools": [{"name": "f"}])"), "tools.0"},
          std::pair{body_with(kUser, R"(, "tool_choice": {"type": "any"})"), "tool_choice"},
          std::pair{
              body_with(
                  kUser,
                  R"(, "tool_choice": {"type": "tool"}, "tools": [{"name": "f", "input_schema": {"type": "object"}}])"),
              "tool_choice"},
          std::pair{body_with(kUser, R"(, "thinking": {"type": "no"})"), "thinking"},
          std::pair{body_with(kUser, R"(, "output_config": {"format": {"type": "json_schema"}})"),
                    "output_config.format.schema"},
          std::pair{body_with(kUser, R"(, "output_config": {"format": {"type": "yaml"}})"),
                    "output_config.format.type"},
          std::pair{
              body_with(
                  kUser,
                  R"(, "output_format": {"type": "text"}, "output_config": {"format": {"type": "text"}})"),
              "output_format"},
      }) {
    const auto ask = read_messages(body, false);
    ASSERT_FALSE(ask.ok()) << body;
    EXPECT_EQ(ask.error().param, param) << ask.error().message;
  }
}

}  // namespace
}  // namespace foretoken::edge
