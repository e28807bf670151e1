// OpenAI's bodies: what reaches the router, what is refused and under which name.
#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <tuple>

#include "common/messages/speculation_object.h"
#include "services/edge/anthropic.h"
#include "services/edge/http_types.h"
#include "services/edge/openai.h"
#include "services/edge/request_keys.h"
#include "services/edge/responses.h"
#include "services/edge/triton.h"

namespace foretoken::edge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Optional;
using ::testing::SizeIs;

OrderedJson chat(const std::string& more = "") {
  return OrderedJson::parse(R"({"model": "demo", "messages": [{"role": "user", "content": "hi"}])" +
                            more + "}");
}
OrderedJson conversation(const std::string& messages) {
  return OrderedJson::parse(R"({"model": "demo", "messages": [)" + messages + "]}");
}
OrderedJson text(const std::string& more = "") {
  return OrderedJson::parse(R"({"model": "demo", "prompt": "hi")" + more + "}");
}

OpenAiAsk read(const Result<OpenAiAsk>& ask) {
  EXPECT_TRUE(ask.ok()) << (ask.ok() ? "" : ask.error().message);
  return ask.ok() ? *ask : OpenAiAsk{};
}

TEST(OpenAiChat, SaysToTheRouterWhatTheBodySays) {
  const auto ask = read(read_chat(
      chat(R"(, "temperature": 0.5, "seed": -3, "stop": ["a", "b"], "logit_bias": {"5": -100},
               "max_completion_tokens": 7, "max_tokens": 9, "top_k": -1, "user": "u", "stop_token_ids": [4])"),
      {}));
  ASSERT_EQ(ask.generation.choices.size(), 1U);
  const auto& request = ask.generation.choices[0];
  EXPECT_EQ(request.model, "demo");
  EXPECT_EQ(request.messages, (std::vector<wire::ChatMessage>{{.role = "user", .content = "hi"}}));
  EXPECT_FLOAT_EQ(request.params.temperature, 0.5F);
  EXPECT_EQ(request.params.seed, static_cast<std::uint64_t>(-3));
  EXPECT_THAT(request.stop, ElementsAre("a", "b"));
  EXPECT_THAT(request.params.logit_bias, ElementsAre(std::pair<TokenId, float>(5, -100.0F)));
  EXPECT_EQ(request.params.max_tokens, 7U);
  EXPECT_EQ(request.params.top_k, 0U);
  EXPECT_THAT(request.params.stop_token_ids, ElementsAre(4));
  EXPECT_THAT(ask.ignored, ElementsAre("user"));
}

TEST(OpenAiChat, GoesToTheEndOfTheContextUnlessItSaysOtherwise) {
  EXPECT_EQ(read(read_chat(chat(), {})).generation.choices[0].params.max_tokens, kToEndOfContext);
}

TEST(OpenAi, TakesTheNumberThatMeansToTheEndOfTheContext) {
  const auto max_tokens = [](const auto& ask) {
    return ask.ok() ? ask->generation.choices[0].params.max_tokens : 0U;
  };
  EXPECT_EQ(max_tokens(read_chat(chat(R"(, "max_tokens": 4294967295)"), {})), kToEndOfContext);
  EXPECT_EQ(max_tokens(read_completion(text(R"(, "max_tokens": 4294967295)"), {})),
            kToEndOfContext);
  const auto responses =
      OrderedJson::parse(R"({"model": "demo", "input": "hi", "max_output_tokens": 4294967295})");
  EXPECT_EQ(max_tokens(read_responses(responses, false)), kToEndOfContext);
  const auto beyond = read_chat(chat(R"(, "max_tokens": 4294967296)"), {});
  ASSERT_FALSE(beyond.ok());
  EXPECT_EQ(beyond.error().param, "max_tokens");
}

// The requests that a body becomes; none where it is refused.
std::vector<wire::ClientRequest> choices_of(const auto& ask) {
  EXPECT_TRUE(ask.ok()) << ask.error().message;
  return ask.ok() ? ask->generation.choices : std::vector<wire::ClientRequest>{};
}

TEST(Seeds, MinusOneCountsAsNotGivenInEveryProtocol) {
  const auto all_with = [](const std::string& value) {
    const std::string seed = ", \"seed\": " + value + "}";
    const auto parsed = [](const std::string& body) { return OrderedJson::parse(body); };
    std::vector<wire::ClientRequest> all;
    for (
        const auto& choices :
        {choices_of(read_chat(chat(R"(, "seed": )" + value), {})),
         choices_of(read_completion(text(R"(, "seed": )" + value), {})),
         choices_of(read_responses(parsed(R"({"model": "demo", "input": "hi")" + seed), true)),
         choices_of(read_messages(
             parsed(
                 R"({"model": "demo", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}])" +
                 seed),
             true))})
      all.insert(all.end(), choices.begin(), choices.end());
    const auto generate = read_triton(
        Json{{"text_input", "hi"}, {"max_tokens", 5}, {"random_seed", Json::parse(value)}}, "demo",
        {});
    const auto of_triton = choices_of(generate);
    all.insert(all.end(), of_triton.begin(), of_triton.end());
    EXPECT_THAT(all, SizeIs(5));
    return all;
  };
  for (const auto& request : all_with("-1")) EXPECT_FALSE(request.given.contains("seed"));
  for (const auto& request : all_with("-2")) {
    EXPECT_TRUE(request.given.contains("seed"));
    EXPECT_EQ(request.params.seed, static_cast<std::uint64_t>(-2));
  }
  for (const auto& request : all_with("18446744073709551615"))
    EXPECT_TRUE(request.given.contains("seed"));
  // Several answers share a seed all the same.
  const auto several = choices_of(read_chat(chat(R"(, "seed": -1, "n": 2)"), {}));
  ASSERT_THAT(several, SizeIs(2));
  EXPECT_EQ(several[0].params.seed, several[1].params.seed);
  EXPECT_NE(several[0].params.seed, static_cast<std::uint64_t>(-1));
  EXPECT_EQ(read_chat(chat(R"(, "seed": -1.0)"), {}).error().param, "seed");
}

TEST(OpenAiChat, NullsCountAsNotGiven) {
  const auto ask = read(read_chat(
      chat(
          R"(, "temperature": null, "stop": null, "n": null, "stream": null, "tools": null, "prediction": null,
               "stream_options": null, "max_tokens": null, "logprobs": null, "response_format": null)"),
      {.strict = true}));
  EXPECT_FALSE(ask.generation.choices[0].given.contains("temperature"));
}

TEST(OpenAiChat, AnswersOfOneRequestShareASeedAndDifferByTheirNumber) {
  const auto ask = read(read_chat(chat(R"(, "n": 3)"), {}));
  ASSERT_EQ(ask.generation.choices.size(), 3U);
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(ask.generation.choices[i].params.choice, i);
    EXPECT_EQ(ask.generation.choices[i].params.seed, ask.generation.choices[0].params.seed);
    EXPECT_TRUE(ask.generation.choices[i].given.contains("seed"));
  }
}

TEST(OpenAiChat, SpeculationAndPredictionReachTheRouter) {
  const auto ask = read(read_chat(
      chat(
          R"(, "speculation": {"draft_len": 3, "proposer": ["ngram", "prediction"], "adaptive": false},
               "prediction": {"type": "content", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]})"),
      {}));
  const auto& request = ask.generation.choices[0];
  EXPECT_EQ(request.num_draft_tokens, 3);
  EXPECT_EQ(request.proposer, (ProposerSet{ProposerKind::kNgram, ProposerKind::kPrediction}));
  EXPECT_FALSE(request.adaptive);
  EXPECT_EQ(request.prediction, "ab");
  const auto off =
      read(read_chat(chat(R"(, "speculation": {"enabled": false, "draft_len": 3})"), {}));
  EXPECT_EQ(off.generation.choices[0].num_draft_tokens, 0);
}

TEST(OpenAiChat, UnknownFieldsAreNamedAndWithStrictRefused) {
  EXPECT_THAT(read(read_chat(chat(R"(, "frobnicate": 1)"), {})).ignored, ElementsAre("frobnicate"));
  const auto strict = read_chat(chat(R"(, "frobnicate": 1)"), {.strict = true});
  ASSERT_FALSE(strict.ok());
  EXPECT_EQ(strict.error().param, "frobnicate");
}

TEST(OpenAiChat, UsageInEachChunkWithoutUsageIsNamedAsIgnored) {
  const auto ignored = [](const char* options) {
    return read(read_chat(chat(std::string(R"(, "stream": true, "stream_options": )") + options),
                          {}))
        .ignored;
  };
  EXPECT_THAT(ignored(R"({"continuous_usage_stats": true})"),
              ElementsAre("stream_options.continuous_usage_stats"));
  EXPECT_THAT(ignored(R"({"continuous_usage_stats": true, "include_usage": true})"),
              ::testing::IsEmpty());
}

// Each with the field that the client knows, and never the router's name for it.
TEST(OpenAiChat, RefusesByTheNameOfTheField) {
  for (
      const auto& [more, param] : {
          std::pair{R"(, "temperature": "hot")", "temperature"},
          std::pair{R"(, "temperature": 1e400)", "temperature"},
          std::pair{R"(, "n": 0)", "n"},
          std::pair{R"(, "n": 9)", "n"},
          std::pair{R"(, "n": 1.5)", "n"},
          std::pair{R"(, "n": 18446744073709551615)", "n"},
          std::pair{R"(, "max_tokens": 0)", "max_tokens"},
          std::pair{R"(, "max_completion_tokens": -1)", "max_completion_tokens"},
          std::pair{R"(, "stop": [""])", "stop"},
          std::pair{R"(, "stream": 1)", "stream"},
          std::pair{R"(, "stream_options": {"include_usage": true})", "stream_options"},
          std::pair{R"(, "logit_bias": {"x": 1})", "logit_bias"},
          std::pair{R"(, "logit_bias": {"5": 101})", "logit_bias"},
          std::pair{R"(, "top_logprobs": 2)", "top_logprobs"},
          std::pair{R"(, "logprobs": true, "top_logprobs": 21)", "top_logprobs"},
          std::pair{R"(, "tools": {})", "tools"},
          std::pair{R"(, "tools": [{"type": "function"}])", "tools[0]"},
          std::pair{R"(, "tools": [{"type": "custom", "custom": {"name": "f"}}])", "tools[0]"},
          std::pair{R"(, "tools": [{"type": "function", "function": {"name": "a b"}}])",
                    "tools[0]"},
          std::pair{
              R"(, "tools": [{"type": "function", "function": {"name": "f"}}, {"type": "function", "function": {"name": "f"}}])",
              "tools[1]"},
          std::pair{
              R"(, "tools": [{"type": "function", "function": {"name": "f", "parameters": 3}}])",
              "tools[0].function.parameters"},
          std::pair{R"(, "tool_choice": "required")", "tool_choice"},
          std::pair{R"(, "tool_choice": "sometimes")", "tool_choice"},
          std::pair{
              R"(, "tool_choice": {"type": "function", "function": {"name": "g"}}, "tools": [{"type": "function", "function": {"name": "f"}}])",
              "tool_choice"},
          std::pair{
              R"(, "tool_choice": {"type": "function", "function": {"name": ""}}, "tools": [{"type": "function", "function": {"name": "f"}}])",
              "tool_choice"},
          std::pair{
              R"(, "tool_choice": {"type": "function"}, "tools": [{"type": "function", "function": {"name": "f"}}])",
              "tool_choice"},
          std::pair{R"(, "parallel_tool_calls": 1)", "parallel_tool_calls"},
          std::pair{R"(, "chat_template_kwargs": [])", "chat_template_kwargs"},
          std::pair{R"(, "reasoning_effort": 3)", "reasoning_effort"},
          std::pair{R"(, "reasoning_effort": {})", "reasoning_effort"},
          std::pair{R"(, "response_format": {"type": "yaml"})", "response_format.type"},
          std::pair{R"(, "modalities": ["audio"])", "modalities"},
          std::pair{R"(, "prediction": {"type": "content", "content": 5})", "prediction"},
          std::pair{R"(, "speculation": {"draft_len": 33})", "speculation.draft_len"},
          std::pair{R"(, "speculation": {"proposer": "oracle"})", "speculation.proposer"},
          std::pair{R"(, "speculation": {"depth": 3})", "speculation.depth"},
          std::pair{R"(, "functions": [{}])", "functions"},
          std::pair{R"(, "prompt_logprobs": 21)", "prompt_logprobs"},
          std::pair{R"(, "prompt_logprobs": 1, "stream": true)", "prompt_logprobs"},
          std::pair{R"(, "return_token_ids": 1)", "return_token_ids"},
      }) {
    SCOPED_TRACE(more);
    OrderedJson body;
    if (std::string(more).find("1e400") != std::string::npos) continue;  // JSON itself refuses it
    body = chat(more);
    const auto ask = read_chat(body, {});
    ASSERT_FALSE(ask.ok());
    EXPECT_EQ(ask.error().param, param) << ask.error().message;
    EXPECT_THAT(ask.error().message,
                HasSubstr(std::string(param).substr(0, std::string(param).find_first_of(".["))));
  }
}

constexpr const char* kTool =
    R"(, "tools": [{"type": "function", "function": {"name": "f", "description": "d", "strict": true,
       "parameters": {"type": "object", "properties": {"b": {}, "a": {}}}}}])";

TEST(OpenAiChat, ToolsReachTheTemplateInTheirOrder) {
  const auto ask = read(read_chat(chat(kTool), {}));
  EXPECT_EQ(
      ask.generation.choices[0].tools.text,
      R"([{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","properties":{"b":{},"a":{}}}}}])");
  EXPECT_EQ(ask.generation.choices[0].tool_choice, ToolChoice::kAuto);
  EXPECT_TRUE(ask.rules.may_call && !ask.rules.one_call);
  EXPECT_THAT(ask.rules.tool_names, ElementsAre("f"));
  EXPECT_THAT(ask.ignored, ElementsAre("tools[0].function.strict"));
  EXPECT_EQ(read_chat(chat(kTool), {.strict = true}).error().param, "tools[0].function.strict");
}

// As clients of MCP name them: up to Anthropic's limit, with every protocol.
TEST(Tools, NamesHaveUpTo128Characters) {
  const auto chat_with = [](const std::string& name) {
    const std::string function = R"({"type": "function", "function": {"name": ")" + name + "\"}}";
    return read_chat(chat(R"(, "tools": [)" + function + R"(], "tool_choice": )" + function), {});
  };
  const auto responses_with = [](const std::string& name) {
    const std::string tool = R"({"type": "function", "name": ")" + name + "\"}";
    return read_responses(OrderedJson::parse(R"({"model": "demo", "input": "hi", "tools": [)" +
                                             tool + R"(], "tool_choice": )" + tool + "}"),
                          true);
  };
  const auto messages_with = [](const std::string& name) {
    return read_messages(
        OrderedJson::parse(
            R"({"model": "demo", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}],
                "tools": [{"name": ")" +
            name +
            R"(", "input_schema": {"type": "object"}}], "tool_choice": {"type": "tool", "name": ")" +
            name + "\"}}"),
        true);
  };
  const auto check = [](const auto& ask_with) {
    const std::string longest(128, 'f');
    const auto ask = ask_with(longest);
    ASSERT_TRUE(ask.ok()) << ask.error().message;
    EXPECT_EQ(ask->generation.choices[0].tool_name, longest);
    const auto refused = ask_with(longest + "f");
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(refused.error().param, HasSubstr("tools"));
    EXPECT_THAT(refused.error().message, HasSubstr("1 to 128 letters"));
  };
  check(chat_with);
  check(responses_with);
  check(messages_with);
}

TEST(OpenAiChat, ToolsThatMayNotBeCalledStayInThePrompt) {
  const auto ask = read(read_chat(chat(std::string(kTool) + R"(, "tool_choice": "none")"), {}));
  EXPECT_NE(ask.generation.choices[0].tools.text, "");
  EXPECT_EQ(ask.generation.choices[0].tool_choice, ToolChoice::kNone);
  EXPECT_FALSE(ask.rules.may_call);
}

TEST(OpenAiChat, ACallIsAskedForByItsName) {
  const auto ask = read(read_chat(
      chat(
          std::string(kTool) +
          R"(, "parallel_tool_calls": false, "tool_choice": {"type": "function", "function": {"name": "f"}})"),
      {}));
  EXPECT_EQ(ask.generation.choices[0].tool_choice, ToolChoice::kRequired);
  EXPECT_EQ(ask.generation.choices[0].tool_name, "f");
  EXPECT_TRUE(ask.rules.one_call);
}

constexpr const char* kTwoTools =
    R"(, "tools": [{"type": "function", "function": {"name": "f"}}, {"type": "function", "function": {"name": "g"}}])";
constexpr const char* kAllowedG = R"([{"type": "function", "function": {"name": "g"}}])";

OrderedJson chat_allowing(const std::string& mode, const std::string& entries) {
  return chat(std::string(kTwoTools) +
              R"(, "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": )" + mode +
              R"(, "tools": )" + entries + "}}");
}

TEST(OpenAiChat, ToolsThatAreNotAllowedStayInThePrompt) {
  const auto all = read(read_chat(chat(kTwoTools), {}));
  EXPECT_THAT(all.rules.tool_names, ElementsAre("f", "g"));
  EXPECT_FALSE(all.rules.checks_names);
  const auto ask = read(read_chat(chat_allowing(R"("auto")", kAllowedG), {.strict = true}));
  EXPECT_EQ(answer_key(ask.generation.choices[0]), answer_key(all.generation.choices[0]));
  EXPECT_THAT(ask.rules.tool_names, ElementsAre("g"));
  EXPECT_TRUE(ask.rules.may_call && ask.rules.checks_names);
}

TEST(OpenAiChat, OneOfTheAllowedToolsIsAskedFor) {
  const auto both = read(read_chat(
      chat_allowing(
          R"("required")",
          R"([{"type": "function", "function": {"name": "g"}}, {"type": "function", "function": {"name": "f"}}])"),
      {.strict = true}));
  const auto any =
      read(read_chat(chat(std::string(kTwoTools) + R"(, "tool_choice": "required")"), {}));
  EXPECT_EQ(answer_key(both.generation.choices[0]), answer_key(any.generation.choices[0]));
  EXPECT_THAT(both.rules.tool_names, ElementsAre("g", "f"));
  EXPECT_TRUE(both.rules.may_call && both.rules.checks_names);
  const auto one = read(read_chat(chat_allowing(R"("required")", kAllowedG), {.strict = true}));
  EXPECT_EQ(one.generation.choices[0].tool_choice, ToolChoice::kRequired);
  EXPECT_EQ(one.generation.choices[0].tool_name, "g") << "there is no other";
}

TEST(OpenAiChat, RefusesAllowedToolsOfABadShape) {
  std::string many = "[";
  for (int i = 0; i < 129; ++i)
    many += std::string(i > 0 ? "," : "") + R"({"type": "function", "function": {"name": "g"}})";
  many += "]";
  for (const auto& [mode, entries, said] : {
           std::tuple<std::string, std::string, std::string>{R"("none")", kAllowedG,
                                                             R"(mode is "none")"},
           {"null", kAllowedG, "mode is null"},
           {R"("auto")", "null", "tools must be a list"},
           {R"("auto")", "{}", "tools must be a list"},
           {R"("auto")", "[]", "tools must be a list that is not empty"},
           {R"("auto")", many, "129 entries; the limit is 128"},
           {R"("auto")", "[3]", "tools[0] is of type null"},
           {R"("auto")", R"([{"type": "custom", "custom": {"name": "g"}}])",
            R"(tools[0] is of type "custom")"},
           {R"("auto")", R"([{"type": "function", "name": "g"}])", "tools[0].function.name"},
           {R"("auto")", R"([{"type": "function", "function": {"name": "h"}}])", "names h,"},
       }) {
    SCOPED_TRACE(said);
    const auto ask = read_chat(chat_allowing(mode, entries), {});
    ASSERT_FALSE(ask.ok());
    EXPECT_EQ(ask.error().param, "tool_choice");
    EXPECT_THAT(ask.error().message, HasSubstr(said));
  }
  // The form of /v1/responses.
  const auto flat = read_chat(
      chat(
          std::string(kTwoTools) +
          R"(, "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "g"}]})"),
      {});
  ASSERT_FALSE(flat.ok());
  EXPECT_EQ(flat.error().param, "tool_choice");
}

OrderedJson response_allowing(const std::string& mode, const std::string& entries) {
  return OrderedJson::parse(
      R"({"input": "hi", "tools": [{"type": "web_search"}, {"type": "function", "name": "f"}, {"type": "function", "name": "g"}],
          "tool_choice": {"type": "allowed_tools", "mode": ")" +
      mode + R"(", "tools": )" + entries + "}}");
}

TEST(OpenAiResponses, AllowedToolsAreFunctionsAndOthersAreSkipped) {
  const auto ask = read_responses(
      response_allowing("required",
                        R"([{"type": "web_search"}, {"type": "function", "name": "g"}])"),
      false);
  ASSERT_TRUE(ask.ok());
  EXPECT_EQ(ask->generation.choices[0].tool_choice, ToolChoice::kRequired);
  EXPECT_EQ(ask->generation.choices[0].tool_name, "g");
  EXPECT_THAT(ask->generation.choices[0].tools.text, HasSubstr(R"("name":"f")"));
  EXPECT_THAT(ask->rules.tool_names, ElementsAre("g"));
  EXPECT_TRUE(ask->rules.may_call && ask->rules.checks_names);
  EXPECT_THAT(ask->ignored, ElementsAre("tools.0", "tool_choice.tools.0"));
  const OrderedJson echo = OrderedJson::parse("{" + ask->echo + "}");
  EXPECT_EQ(member(member(echo, "tool_choice"), "mode"), "required");
  const auto none = read_responses(response_allowing("auto", R"([{"type": "web_search"}])"), false);
  ASSERT_TRUE(none.ok());
  EXPECT_THAT(none->rules.tool_names, ::testing::IsEmpty());
  EXPECT_TRUE(none->rules.checks_names);
}

TEST(OpenAiResponses, RefusesAllowedToolsOfABadShape) {
  for (const auto& [mode, entries] : {
           std::pair{"none", R"([{"type": "function", "name": "g"}])"},
           std::pair{"auto", "[]"},
           std::pair{"auto", R"([{"type": "function", "name": "h"}])"},
           std::pair{"auto", R"([{"type": "function", "function": {"name": "g"}}])"},
           std::pair{"required", R"([{"type": "web_search"}])"},
       }) {
    SCOPED_TRACE(entries);
    const auto ask = read_responses(response_allowing(mode, entries), false);
    ASSERT_FALSE(ask.ok());
    EXPECT_EQ(ask.error().param, "tool_choice");
  }
}

// A template gets the arguments of a call as an object: as a text it would quote them twice.
TEST(OpenAiChat, AConversationWithCallsReachesTheTemplate) {
  const auto ask = read(read_chat(conversation(
                                      R"({"role": "user", "content": "hi"},
             {"role": "assistant", "content": null, "refusal": null, "reasoning": "hm", "tool_calls": [
               {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"b\": 1, \"a\": 2}"}},
               {"id": "c2", "type": "function", "function": {"name": "g", "arguments": ""}}]},
             {"role": "tool", "tool_call_id": "c1", "content": "3"})"),
                                  {}));
  const auto& messages = ask.generation.choices[0].messages;
  ASSERT_EQ(messages.size(), 3U);
  EXPECT_EQ(
      messages[1],
      (wire::ChatMessage{
          "assistant",
          "",
          {R"({"reasoning_content":"hm","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":{"b":1,"a":2}}},{"id":"c2","type":"function","function":{"name":"g","arguments":{}}}]})"}}));
  EXPECT_EQ(messages[2], (wire::ChatMessage{"tool", "3", {R"({"tool_call_id":"c1"})"}}));
}

// The field that a conversation of this one message is refused for; "" = it is taken.
std::string refused_field(const OrderedJson& message) {
  const auto ask = read_chat(conversation(message.dump()), {});
  return ask.ok() ? "" : ask.error().param;
}

OrderedJson message_with_call(const OrderedJson& arguments) {
  const OrderedJson function = {{"name", "f"}, {"arguments", arguments}};
  const OrderedJson call = {{"id", "c1"}, {"type", "function"}, {"function", function}};
  return {{"role", "assistant"}, {"content", nullptr}, {"tool_calls", OrderedJson::array({call})}};
}

TEST(OpenAiChat, RefusesAConversationThatDoesNotHoldTogether) {
  EXPECT_EQ(refused_field({{"role", "tool"}, {"tool_call_id", "c1"}, {"content", "3"}}),
            "messages[0].tool_call_id");
  EXPECT_EQ(refused_field(message_with_call("{}")), "");
  EXPECT_EQ(refused_field({{"role", "user"},
                           {"content", "a"},
                           {"tool_calls", OrderedJson::array({OrderedJson::object()})}}),
            "messages[0].tool_calls");
  EXPECT_EQ(refused_field({{"role", "user"}}), "messages[0].content");
}

// So a client that leaves out what is null sends back an answer that was a thought alone.
TEST(OpenAiChat, AMessageWithoutContentIsTakenAsOneWhoseContentIsNull) {
  const OrderedJson asked = {{"role", "user"}, {"content", "hi"}};
  const OrderedJson call = message_with_call("{}");
  OrderedJson thought = {{"role", "assistant"}, {"reasoning_content", "hm"}};
  OrderedJson result = {{"role", "tool"}, {"tool_call_id", "c1"}};
  const auto messages = [&] {
    const OrderedJson all = OrderedJson::array({asked, thought, call, result});
    const auto ask = read(read_chat({{"model", "demo"}, {"messages", all}}, {}));
    return ask.generation.choices.empty() ? std::vector<wire::ChatMessage>()
                                          : ask.generation.choices[0].messages;
  };
  const auto without = messages();
  thought["content"] = result["content"] = nullptr;
  EXPECT_EQ(without.size(), 4U);
  EXPECT_EQ(without, messages());
}

// What the template gets of the arguments of the first call; null: the conversation is refused.
OrderedJson arguments_at_the_template(const auto& ask) {
  EXPECT_TRUE(ask.ok()) << ask.error().message;
  if (!ask.ok()) return nullptr;
  const auto extra = OrderedJson::parse(ask->generation.choices[0].messages[0].extra.text);
  return extra["tool_calls"][0]["function"]["arguments"];
}

void expect_arguments(const std::string& arguments, const OrderedJson& expected) {
  SCOPED_TRACE(arguments);
  const OrderedJson message = message_with_call(arguments);
  EXPECT_EQ(arguments_at_the_template(read_chat(conversation(message.dump()), {})), expected);
  const OrderedJson item = {
      {"type", "function_call"}, {"call_id", "c1"}, {"name", "f"}, {"arguments", arguments}};
  const OrderedJson body = {{"model", "demo"}, {"input", OrderedJson::array({item})}};
  EXPECT_EQ(arguments_at_the_template(read_responses(body, true)), expected);
}

TEST(OpenAi, ArgumentsThatAreNoObjectReachTheTemplateAsTheirText) {
  std::string deep = "1", many = "{\"k\":1";
  for (int i = 0; i < 61; ++i) deep = R"({"a":)" + deep + "}";
  for (int i = 0; i < 512; ++i) many += ",\"" + std::to_string(i) + "\":1";
  many += "}";
  for (const std::string& text :
       {std::string("["), std::string("[]"), std::string(" "), std::string(R"({"a": "b)"),
        std::string(R"("{}")"), std::string(R"({"a": 1, "a": 2})"), deep, many})
    expect_arguments(text, text);
  const std::string less_deep = deep.substr(5, deep.size() - 6);
  expect_arguments(less_deep, OrderedJson::parse(less_deep));
  // What is neither an object nor a text is a fault of the client.
  EXPECT_EQ(refused_field(message_with_call(OrderedJson::array())),
            "messages[0].tool_calls[0].function.arguments");
}

// The message has the setting of a client that helps.
TEST(OpenAiResponses, AReferenceToAKeptItemIsRefusedInItsOwnWords) {
  const auto ask = read_responses(
      OrderedJson::parse(
          R"({"model": "demo", "input": [{"role": "user", "content": "hi"}, {"type": "item_reference", "id": "rs_1"}]})"),
      false);
  ASSERT_FALSE(ask.ok());
  EXPECT_EQ(ask.error().code, ErrorCode::kUnsupportedParameter);
  EXPECT_EQ(ask.error().param, "input.1");
  EXPECT_THAT(ask.error().message, HasSubstr("nothing is kept here: set store to false"));
}

TEST(OpenAi, ArgumentsWithRawControlCharactersAreAnObject) {
  expect_arguments("{\"b\": \"x\n\ty\", \"a\": 2}", OrderedJson::parse(R"({"b":"x\n\ty","a":2})"));
  expect_arguments("\n {\"b\": \"x\ny\"}\n", OrderedJson::parse(R"({"b":"x\ny"})"));
}

TEST(OpenAiChat, UnknownKeysOfMessagesAreNamedAndWithStrictRefused) {
  const OrderedJson body = conversation(
      R"({"role": "user", "content": "a", "mood": null},
         {"role": "assistant", "content": "b", "refusal": "no", "cache_control": {"type": "x"}})");
  EXPECT_THAT(read(read_chat(body, {})).ignored, ElementsAre("messages[1].cache_control"));
  const auto tokens = read_tokens(body, "tokenize", false);
  ASSERT_TRUE(tokens.ok());
  EXPECT_THAT(tokens->ignored, ElementsAre("messages[1].cache_control"));
  const auto strict = read_chat(body, {.strict = true});
  ASSERT_FALSE(strict.ok());
  EXPECT_EQ(strict.error().param, "messages[1].cache_control");
  EXPECT_EQ(strict.error().code, ErrorCode::kUnsupportedParameter);
}

TEST(OpenAiChat, ManyUnknownKeysOfMessagesMakeAShortHeader) {
  OrderedJson body = chat();
  body["messages"] = OrderedJson::array();
  for (int i = 0; i < 100; ++i) {
    OrderedJson message = {{"role", "user"}, {"content", "a"}};
    for (int key = 0; key < 100; ++key) message["key" + std::to_string(key)] = 1;
    body["messages"].push_back(std::move(message));
  }
  const auto ask = read(read_chat(body, {}));
  EXPECT_LT(ask.ignored.size(), 1000U);
  const std::string header = header_list(ask.ignored);
  EXPECT_TRUE(header.starts_with("messages[0].key0, messages[0].key1, ")) << header;
  EXPECT_TRUE(header.ends_with(", ...")) << header;
  EXPECT_LT(header.size(), 1100U);
}

TEST(OpenAiChat, TheEffortIsAVariableOfTheTemplate) {
  const auto variables = [](const std::string& more) {
    const auto ask = read(read_chat(chat(more), {.strict = true}));
    EXPECT_THAT(ask.ignored, ::testing::IsEmpty());
    return ask.generation.choices.at(0).chat_template_kwargs.text;
  };
  EXPECT_EQ(variables(R"(, "reasoning_effort": "low")"), R"({"reasoning_effort":"low"})");
  EXPECT_EQ(variables(R"(, "reasoning_effort": "low", "chat_template_kwargs": {"b": 1, "a": 2})"),
            R"({"b":1,"a":2,"reasoning_effort":"low"})");
  EXPECT_EQ(
      variables(
          R"(, "reasoning_effort": "low", "chat_template_kwargs": {"reasoning_effort": "high"})"),
      R"({"reasoning_effort":"high"})");
  EXPECT_EQ(variables(R"(, "reasoning_effort": null)"), "");
  const auto tokens = read_tokens(chat(R"(, "reasoning_effort": "low")"), "tokenize", true);
  ASSERT_TRUE(tokens.ok());
  EXPECT_EQ(tokens->request.chat_template_kwargs.text, R"({"reasoning_effort":"low"})");
}

// The prompt is the one of the chat that continues the same message.
TEST(OpenAiTokenize, ContinuesTheLastMessageAsAChatDoes) {
  const OrderedJson body = OrderedJson::parse(
      R"({"model": "demo", "add_generation_prompt": false, "continue_final_message": true, "messages": [
          {"role": "user", "content": "hi"}, {"role": "assistant", "content": "Once"}]})");
  const auto tokens = read_tokens(body, "tokenize", true);
  ASSERT_TRUE(tokens.ok()) << tokens.error().message;
  EXPECT_THAT(tokens->ignored, IsEmpty());
  EXPECT_TRUE(tokens->request.continue_final_message);
}

// As of clients that write out the defaults of both forms of the request.
TEST(OpenAiTokenize, TakesAFalseThatAPromptDoesNotNeed) {
  const OrderedJson body =
      OrderedJson::parse(R"({"model": "demo", "prompt": "hi", "continue_final_message": false})");
  const auto tokens = read_tokens(body, "tokenize", true);
  EXPECT_TRUE(tokens.ok()) << tokens.error().message;
}

TEST(OpenAiCompletion, TakesEveryFormOfAPrompt) {
  EXPECT_EQ(read(read_completion(text(), {})).generation.choices[0].prompt, "hi");
  EXPECT_EQ(read(read_completion(text(), {})).generation.choices[0].params.max_tokens, 16U);
  const auto texts = read(read_completion(
      OrderedJson::parse(R"({"model": "demo", "prompt": ["a", "b"], "n": 2})"), {}));
  ASSERT_EQ(texts.generation.choices.size(), 4U);
  EXPECT_EQ(texts.generation.choices[1].prompt, "a");
  EXPECT_EQ(texts.generation.choices[1].params.choice, 1U);
  EXPECT_EQ(texts.generation.choices[2].prompt, "b");
  EXPECT_EQ(texts.generation.choices[2].params.choice, 0U);
  const auto ids =
      read(read_completion(OrderedJson::parse(R"({"model": "demo", "prompt": [5, 6]})"), {}));
  ASSERT_EQ(ids.generation.choices.size(), 1U);
  EXPECT_THAT(ids.generation.choices[0].token_ids, ElementsAre(5, 6));
  const auto lists = read(
      read_completion(OrderedJson::parse(R"({"model": "demo", "prompt": [[5], [6, 7]]})"), {}));
  ASSERT_EQ(lists.generation.choices.size(), 2U);
  EXPECT_THAT(lists.generation.choices[1].token_ids, ElementsAre(6, 7));
}

TEST(OpenAiCompletion, RefusesWhatIsNoPrompt) {
  for (const char* prompt :
       {"[]", "5", "{}", R"([5, "a"])", "[[]]", "[-1]", "[1.5]", "[[1], null]"}) {
    const auto ask = read_completion(
        Json::parse(std::string(R"({"model": "demo", "prompt": )") + prompt + "}"), {});
    ASSERT_FALSE(ask.ok()) << prompt;
    EXPECT_EQ(ask.error().param, "prompt") << prompt << ": " << ask.error().message;
  }
  EXPECT_FALSE(read_completion(OrderedJson::parse(R"({"model": "demo"})"), {}).ok());
}

TEST(OpenAiCompletion, EchoAndBestOf) {
  EXPECT_THAT(read(read_completion(text(R"(, "echo": true)"), {})).prompts,
              ElementsAre(Optional(std::string("hi"))));
  EXPECT_TRUE(read_completion(text(R"(, "best_of": 2, "n": 2)"), {}).ok());
  EXPECT_EQ(read_completion(text(R"(, "best_of": 2)"), {}).error().param, "best_of");
}

TEST(OpenAiCompletion, TheTokensOfAPromptOfIdsAreAskedForToEchoItAndThoseOfATextAreNot) {
  const auto n_prompt_logprobs = [](const std::string& prompt) {
    const auto ask = read(read_completion(
        OrderedJson::parse(R"({"model": "demo", "echo": true, "prompt": )" + prompt + "}"), {}));
    return ask.generation.choices.at(0).params.n_prompt_logprobs;
  };
  EXPECT_EQ(n_prompt_logprobs(R"("hi")"), -1);
  EXPECT_EQ(n_prompt_logprobs(R"("")"), -1);
  EXPECT_EQ(n_prompt_logprobs("[5, 6]"), 0);
  EXPECT_EQ(n_prompt_logprobs(R"(["", [5, 6]])"), 0);
}

TEST(OpenAiFields, AsManyAnswersAsTheConfigurationAllows) {
  const BodyRules few{.max_choices = 3}, many{.max_choices = 16};
  const auto errors = [](const BodyRules& rules, int n) {
    const std::string number = std::to_string(n);
    const auto of_chat = read_chat(chat(R"(, "n": )" + number), rules);
    const auto of_text = read_completion(text(R"(, "n": )" + number), rules);
    const auto of_triton = read_triton(
        Json::parse(R"({"text_input": "hi", "max_tokens": 3, "num_return_sequences": )" + number +
                    "}"),
        "demo", {.body = rules});
    std::vector<std::string> said;
    for (const auto* error :
         {of_chat.ok() ? nullptr : &of_chat.error(), of_text.ok() ? nullptr : &of_text.error(),
          of_triton.ok() ? nullptr : &of_triton.error()})
      if (error != nullptr) said.push_back(error->message);
    return said;
  };
  EXPECT_THAT(errors(few, 3), IsEmpty());
  EXPECT_THAT(errors(few, 4), ElementsAre("n is 4; it must be an integer from 1 to 3 "
                                          "(edge.max_choices)",
                                          "n is 4; it must be an integer from 1 to 3 "
                                          "(edge.max_choices)",
                                          "num_return_sequences is 4; it must be an integer from 1 "
                                          "to 3 (edge.max_choices)"));
  EXPECT_THAT(errors(many, 16), IsEmpty());
  EXPECT_THAT(errors(many, 17), SizeIs(3));
  EXPECT_THAT(errors({}, 8), IsEmpty());
  EXPECT_THAT(errors({}, 9), SizeIs(3));
}

// Each request has all that they share: a body of a megabyte may come to a gigabyte of them.
TEST(OpenAiCompletion, RequestsOfOneBodyHaveALimitTogether) {
  const BodyRules rules{.max_request_bytes = std::size_t{1} << 20};
  Json body = text();
  body["prediction"] = {{"type", "content"}, {"content", std::string(100'000, 'x')}};
  body["prompt"] = std::vector<std::string>(6, "hi");
  body["n"] = 2;
  EXPECT_TRUE(read_completion(body, {}).ok());
  const auto many = read_completion(body, rules);
  ASSERT_FALSE(many.ok());
  EXPECT_THAT(many.error().message, HasSubstr("more than 1 MiB of requests (edge.max_bodies_mib)"));
  body["n"] = 1;
  EXPECT_TRUE(read_completion(body, rules).ok());
  body["prompt"] = std::string(200'000, 'x');
  body["n"] = 4;
  EXPECT_FALSE(read_completion(body, rules).ok());
}

TEST(RouterRequests, AreCountedWithTheirTextsAndLists) {
  wire::ClientRequest request;
  const auto more = [&](auto change) {
    wire::ClientRequest changed = request;
    change(changed);
    return bytes_of({&changed, 1}) - bytes_of({&request, 1});
  };
  EXPECT_GE(bytes_of({&request, 1}), sizeof request);
  EXPECT_EQ(more([](auto& r) { r.prompt = "12345"; }), 5U);
  EXPECT_EQ(more([](auto& r) { r.prediction = "12345"; }), 5U);
  EXPECT_EQ(more([](auto& r) { r.tools.text = "[]"; }), 2U);
  EXPECT_EQ(more([](auto& r) { r.token_ids = {1, 2, 3}; }), 12U);
  EXPECT_EQ(more([](auto& r) { r.stop = {"ab", "c"}; }), 3 + 2 * sizeof(std::string));
  EXPECT_EQ(more([](auto& r) {
              r.messages = {{"user", "abc", {"{}"}}};
            }),
            9 + sizeof(wire::ChatMessage));
  EXPECT_GE(more([](auto& r) { r.params.logit_bias = {{1, 2.0F}}; }), 8U);
  const std::vector<wire::ClientRequest> two(2);
  EXPECT_EQ(bytes_of(two), 2 * bytes_of({two.data(), 1}));
}

TEST(OpenAiFields, LogprobsHaveTheLimitOfTheListing) {
  const auto beyond = [](const char* key) {
    return ": " + std::to_string(static_cast<int>(limit_of(key).high) + 1);
  };
  const std::string range = range_text(limit_of("logprobs"));
  const auto of_chat =
      read_chat(chat(R"(, "logprobs": true, "top_logprobs")" + beyond("logprobs")), {});
  const auto of_text = read_completion(text(R"(, "logprobs")" + beyond("logprobs")), {});
  const auto of_prompt =
      read_completion(text(R"(, "prompt_logprobs")" + beyond("prompt_logprobs")), {});
  const auto of_response = read_responses(
      OrderedJson::parse(R"({"input": "hi", "top_logprobs")" + beyond("logprobs") + "}"), false);
  EXPECT_THAT(of_chat.error().message, HasSubstr("an integer " + range));
  EXPECT_THAT(of_text.error().message, HasSubstr("an integer " + range));
  EXPECT_THAT(of_prompt.error().message, HasSubstr("an integer " + range));
  EXPECT_THAT(of_response.error().message, HasSubstr("an integer " + range));
}

// A new parameter of sampling is one without a line of its own.
TEST(OpenAiFields, EveryKeyOfSamplingIsOne) {
  for (const auto fields : {chat_fields(), completion_fields()})
    for (const RequestKey& key : listed_keys()) {
      if (key.topic != wire::Topic::kSampling) continue;
      EXPECT_EQ(std::count_if(fields.begin(), fields.end(),
                              [&](const BodyField& field) { return field.name == key.name; }),
                1)
          << key.name;
    }
}

TEST(OpenAiChat, TakesEachMemberOfSpeculation) {
  for (const auto& member : wire::kSpeculationMembers) {
    const auto bad =
        read_chat(chat(R"(, "speculation": {")" + std::string(member.name) + R"(": []})"), {});
    ASSERT_FALSE(bad.ok()) << member.name;
    EXPECT_EQ(bad.error().param, "speculation." + std::string(member.name));
    EXPECT_THAT(bad.error().message, HasSubstr("speculation." + std::string(member.name)));
  }
}

TEST(Triton, NamesItsOwnFieldForTheGuesses) {
  const auto ask = read_triton(
      Json::parse(R"({"text_input": "hi", "max_tokens": 3, "num_draft_tokens": 99})"), "demo", {});
  ASSERT_FALSE(ask.ok());
  EXPECT_EQ(ask.error().param, "num_draft_tokens") << ask.error().message;
}

TEST(Triton, AnEndIdLeavesItsTextOutWithStopWordsToo) {
  for (const char* more : {"", R"(, "stop_words": "x")"}) {
    const auto choices = choices_of(read_triton(
        Json::parse(std::string(R"({"text_input": "hi", "max_tokens": 3, "end_id": 7)") + more +
                    "}"),
        "demo", {}));
    ASSERT_THAT(choices, SizeIs(1));
    EXPECT_EQ(choices[0].params.stop_token_ids, (std::vector<TokenId>{7}));
    EXPECT_FALSE(choices[0].include_stop_str_in_output);
  }
}

TEST(Triton, ATopKHasTheLimitOfTheListing) {
  const auto ask = [](const char* top_k) {
    return read_triton(
        Json::parse(std::string(R"({"text_input": "hi", "max_tokens": 3, "top_k": )") + top_k +
                    "}"),
        "demo", {});
  };
  EXPECT_TRUE(ask("-1").ok());
  EXPECT_THAT(ask("-2").error().message, HasSubstr(range_text(limit_of("top_k"))));
}

// A field that no reader knows would be honoured in words only.
TEST(OpenAiFields, EachHonouredFieldHasAKeyOrAReader) {
  for (const auto fields : {chat_fields(), completion_fields()})
    for (const auto& field : fields)
      if (field.use == FieldUse::kHonoured && !field.key.empty()) {
        const auto& keys = wire::request_keys();
        EXPECT_NE(std::find(keys.begin(), keys.end(), field.key), keys.end()) << field.name;
      }
}

}  // namespace
}  // namespace foretoken::edge
