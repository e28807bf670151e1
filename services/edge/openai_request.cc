// OpenAI's bodies -> requests to the router. What a body says is put under the router's own keys,
// and read as a ZeroMQ client's request is: one listing of limits for both doors.
#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "common/base/limit.h"
#include "common/client/client.h"
#include "services/edge/answer_constraint.h"
#include "services/edge/openai.h"
#include "services/edge/openai_tools.h"
#include "services/edge/router_request.h"

namespace foretoken::edge {
namespace {

constexpr std::uint32_t kDefaultCompletionTokens = 16;  // OpenAI's

// Of the members of stream_options one that is true or false.
Result<bool> stream_option(const Json& options, const char* name) {
  auto wanted = flag(options, name);
  if (wanted.ok()) return wanted;
  const std::string path = std::string("stream_options.") + name;
  return invalid_value(path + " must be true or false", path);
}

Result<void> name_unknown_options(const Json& options, bool strict, OpenAiAsk& ask) {
  for (const auto& [name, value] : options.items()) {
    const bool says_nothing = value.is_null() || value == false;
    if (says_nothing || name == "include_usage" || name == "continuous_usage_stats") continue;
    const std::string path = "stream_options." + name;
    if (strict) return Error{ErrorCode::kUnsupportedParameter, "unknown field " + path, path};
    ask.ignored.push_back(path);
  }
  return {};
}

Result<void> read_stream(const Json& body, bool strict, OpenAiAsk& ask) {
  const auto stream = flag(body, "stream");
  if (!stream.ok()) return stream.error();
  ask.generation.stream = *stream;
  const Json* options = given(body, "stream_options");
  if (options == nullptr) return {};
  if (!options->is_object())
    return invalid_value("stream_options must be an object", "stream_options");
  if (!*stream) return invalid_value("stream_options needs stream: true", "stream_options");
  const auto usage = stream_option(*options, "include_usage");
  const auto continuous = stream_option(*options, "continuous_usage_stats");
  if (!usage.ok()) return usage.error();
  if (!continuous.ok()) return continuous.error();
  ask.include_usage = *usage;
  ask.continuous_usage = *usage && *continuous;
  if (*continuous && !*usage) ask.ignored.emplace_back("stream_options.continuous_usage_stats");
  return name_unknown_options(*options, strict, ask);
}

// {"type": "content", "content": a string or parts}: under one key of ours.
Result<void> read_prediction(const Json& body, Json& request) {
  const Json* prediction = given(body, "prediction");
  if (prediction == nullptr) return {};
  const auto bad = [] {
    return invalid_value(
        "prediction must be {\"type\": \"content\", \"content\": a text or parts of type text}",
        "prediction");
  };
  if (!prediction->is_object() || prediction->value("type", Json()) != "content") return bad();
  const Json content = prediction->value("content", Json());
  std::string text;
  if (content.is_string()) {
    text = content.get<std::string>();
  } else if (content.is_array()) {
    for (const Json& part : content) {
      if (!part.is_object() || part.value("type", Json()) != "text" ||
          !part.value("text", Json()).is_string())
        return bad();
      text += part["text"].get<std::string>();
    }
  } else {
    return bad();
  }
  if (!text.empty()) request["prediction"] = std::move(text);
  return {};
}

// vLLM's fields about tokens.
Result<void> read_token_reports(const Json& body, Json& request, OpenAiAsk& ask) {
  const auto likeliest = number(body, "prompt_logprobs", limit_of("prompt_logprobs"), -1);
  const auto ids = flag(body, "return_token_ids");
  if (!likeliest.ok()) return likeliest.error();
  if (!ids.ok()) return ids.error();
  ask.n_prompt_logprobs = static_cast<std::int32_t>(*likeliest);
  ask.returns_token_ids = *ids;
  if (*likeliest < 0) return {};
  if (ask.generation.stream)
    return invalid_value("prompt_logprobs are given with a whole answer alone, not with stream",
                         "prompt_logprobs");
  request["prompt_logprobs"] = *likeliest;
  return {};
}

// Members without an effect are named, or refused.
Result<void> read_answer_constraint(const OrderedJson& body,
                                    bool strict,
                                    Json& request,
                                    OpenAiAsk& ask) {
  std::vector<std::string> without_effect;
  auto constraint = read_constraint(body, without_effect);
  if (!constraint.ok()) return constraint.error();
  if (strict && !without_effect.empty())
    return Error{ErrorCode::kUnsupportedParameter, "unknown field " + without_effect.front(),
                 without_effect.front()};
  ask.ignored.insert(ask.ignored.end(), without_effect.begin(), without_effect.end());
  ask.generation.constraint_field = use_constraint(std::move(*constraint), request);
  return {};
}

// What both endpoints read alike.
Result<Json> read_common(const OrderedJson& in_order,
                         const Json& body,
                         std::span<const BodyField> fields,
                         const BodyRules& rules,
                         OpenAiAsk& ask) {
  auto sorted = sort_fields(body, fields, rules.strict);
  if (!sorted.ok()) return sorted.error();
  ask.ignored = std::move(sorted->ignored);
  Json request = std::move(sorted->request);
  if (const auto done = read_answer_constraint(in_order, rules.strict, request, ask); !done.ok())
    return done.error();
  if (const Json* model = given(body, "model"); model != nullptr && model->is_string())
    ask.model = model->get<std::string>();
  if (const Json* speculation = given(body, "speculation");
      speculation != nullptr && speculation->is_object()) {
    const auto report = flag(*speculation, "report");
    if (!report.ok())
      return invalid_value("speculation.report must be true or false", "speculation.report");
    ask.reports_guesses = *report;
  }
  const auto n = n_choices(body, "n", rules);
  if (!n.ok()) return n.error();
  ask.n = *n;
  // "" or [] is how some clients say "none".
  if (const auto stop = request.find("stop");
      stop != request.end() && (*stop == "" || (stop->is_array() && stop->empty())))
    request.erase(stop);
  if (const auto done = read_stream(body, rules.strict, ask); !done.ok()) return done.error();
  if (const auto done = read_token_reports(body, request, ask); !done.ok()) return done.error();
  if (const auto done = read_prediction(body, request); !done.ok()) return done.error();
  if (const auto done = read_speculation(body, request); !done.ok()) return done.error();
  return request;
}

Result<void> check_chat_options(const Json& body) {
  const auto refused = [](std::string message, std::string param) {
    return Error{ErrorCode::kUnsupportedParameter, std::move(message), std::move(param)};
  };
  if (const Json* modalities = given(body, "modalities");
      modalities != nullptr && *modalities != Json::array({"text"}))
    return refused(
        "modalities " + to_text(*modalities) + " are not supported; it may be [\"text\"]",
        "modalities");
  return {};
}

Result<void> read_chat_logprobs(const Json& body, Json& request, OpenAiAsk& ask) {
  const auto wanted = flag(body, "logprobs");
  if (!wanted.ok()) return wanted.error();
  const auto top = number(body, "top_logprobs", limit_of("logprobs"), 0);
  if (!top.ok()) return top.error();
  if (!*wanted && given(body, "top_logprobs") != nullptr && *top > 0)
    return invalid_value("top_logprobs needs logprobs: true", "top_logprobs");
  ask.wants_logprobs = *wanted;
  ask.n_top_logprobs = static_cast<std::uint32_t>(*top);
  if (*wanted) request["logprobs"] = *top;
  return {};
}

Result<ToolUse> read_chat_tools(const OrderedJson& body,
                                bool strict,
                                std::vector<std::string>& ignored) {
  std::vector<std::string> without_effect;
  auto use = read_tool_use(body, without_effect);
  if (!use.ok()) return use;
  if (strict && !without_effect.empty())
    return Error{ErrorCode::kUnsupportedParameter,
                 without_effect.front() + " is not supported: arguments are the model's own",
                 without_effect.front()};
  ignored.insert(ignored.end(), without_effect.begin(), without_effect.end());
  return use;
}

Result<void> read_chat_messages(const OrderedJson& body,
                                bool strict,
                                Json& request,
                                std::vector<std::string>& ignored) {
  std::vector<std::string> unknown;
  auto messages = read_conversation(body, unknown);
  if (!messages.ok()) return messages.error();
  if (strict && !unknown.empty())
    return Error{ErrorCode::kUnsupportedParameter, "unknown field " + unknown.front(),
                 unknown.front()};
  ignored.insert(ignored.end(), unknown.begin(), unknown.end());
  request["messages"] = std::move(*messages);
  return {};
}

// Variables of the chat template.
Result<void> read_variables(const OrderedJson& body, Json& request) {
  const OrderedJson& effort = member(body, "reasoning_effort");
  if (!effort.is_null() && !effort.is_string())
    return invalid_value("reasoning_effort must be a text", "reasoning_effort");
  OrderedJson variables = member(body, "chat_template_kwargs");
  if (variables.is_null()) variables = OrderedJson::object();
  if (!variables.is_object())
    return invalid_value("chat_template_kwargs must be an object", "chat_template_kwargs");
  if (effort.is_string() && !variables.contains("reasoning_effort"))
    variables["reasoning_effort"] = effort;
  if (!variables.empty()) request["chat_template_kwargs"] = to_text(variables);
  return {};
}

// Messages, tools, and the variables of the chat template.
Result<AnswerRules> read_chat_prompt(const OrderedJson& body,
                                     bool strict,
                                     Json& request,
                                     std::vector<std::string>& ignored) {
  const auto use = read_chat_tools(body, strict, ignored);
  if (!use.ok()) return use.error();
  if (const auto done = read_chat_messages(body, strict, request, ignored); !done.ok())
    return done.error();
  if (const auto done = read_variables(body, request); !done.ok()) return done.error();
  if (use->choice == ToolChoice::kRequired &&
      request.value("continue_final_message", Json()) == true)
    return invalid_value("a call cannot be asked for where the answer continues a message",
                         "tool_choice");
  return use_tools(*use, request);
}

// Texts, token ids, or one of them -> requests' prompts.
Result<std::vector<Json>> read_prompts(const Json& body) {
  const Json* prompt = given(body, "prompt");
  if (prompt == nullptr) return Error{ErrorCode::kInvalidRequest, "prompt is required", "prompt"};
  const auto one = [](const Json& value) {
    return Json{{value.is_string() ? "prompt" : "token_ids", value}};
  };
  if (prompt->is_string()) return std::vector<Json>{one(*prompt)};
  if (!prompt->is_array() || prompt->empty())
    return invalid_value(
        "prompt must be a text, a list of texts, a list of token ids, or a list of such lists, not "
        "empty",
        "prompt");
  if (prompt->front().is_number()) return std::vector<Json>{one(*prompt)};
  if (prompt->size() > kPromptsLimit.most)
    return invalid_value("prompt has " + std::to_string(prompt->size()) +
                             " entries; the limit is " + std::to_string(kPromptsLimit.most),
                         "prompt");
  std::vector<Json> prompts;
  for (const Json& each : *prompt) {
    const std::string where = "prompt entry " + std::to_string(prompts.size());
    if (!each.is_string() && !each.is_array())
      return invalid_value(where + " is neither a text nor a list of token ids", "prompt");
    if (each.is_array() && each.empty())
      return invalid_value(where + " is an empty list; it must have at least one token id",
                           "prompt");
    prompts.push_back(one(each));
  }
  return prompts;
}

std::optional<std::string> text_of_prompt(const Json& prompt) {
  const auto text = prompt.find("prompt");
  if (text == prompt.end()) return std::nullopt;
  return text->get<std::string>();
}

}  // namespace

Result<OpenAiAsk> read_chat(const OrderedJson& in_order, const BodyRules& rules) {
  const Json body(in_order);
  OpenAiAsk ask;
  if (const auto good = check_chat_options(body); !good.ok()) return good.error();
  auto request = read_common(in_order, body, chat_fields(), rules, ask);
  if (!request.ok()) return request.error();
  if (const auto done = read_chat_logprobs(body, *request, ask); !done.ok()) return done.error();
  const char* limit =
      given(body, "max_completion_tokens") != nullptr ? "max_completion_tokens" : "max_tokens";
  const auto max_tokens = number(body, limit, kAnswerTokens, kToEndOfContext);
  if (!max_tokens.ok()) return max_tokens.error();
  (*request)["max_tokens"] = *max_tokens;
  auto answer_rules = read_chat_prompt(in_order, rules.strict, *request, ask.ignored);
  if (!answer_rules.ok()) return answer_rules.error();
  ask.rules = std::move(*answer_rules);
  auto requests =
      router_requests({std::move(*request), {Json::object()}, ask.n}, chat_fields(), rules);
  if (!requests.ok()) return requests.error();
  ask.generation.choices = std::move(*requests);
  return ask;
}

Result<OpenAiAsk> read_completion(const OrderedJson& in_order, const BodyRules& rules) {
  const Json body(in_order);
  OpenAiAsk ask;
  auto request = read_common(in_order, body, completion_fields(), rules, ask);
  if (!request.ok()) return request.error();
  const auto best_of = number(body, "best_of", kChoicesLimit, static_cast<std::int64_t>(ask.n));
  if (!best_of.ok()) return best_of.error();
  if (static_cast<std::size_t>(*best_of) != ask.n)
    return Error{ErrorCode::kUnsupportedParameter,
                 "best_of is " + std::to_string(*best_of) + "; it must be equal to n", "best_of"};
  if (const Json* logprobs = given(body, "logprobs"); logprobs != nullptr && *logprobs != false) {
    const auto top = number(body, "logprobs", limit_of("logprobs"), 0);
    if (!top.ok()) return top.error();
    ask.wants_logprobs = true;
    ask.n_top_logprobs = static_cast<std::uint32_t>(*top);
    (*request)["logprobs"] = *top;
  }
  const auto echo = flag(body, "echo");
  if (!echo.ok()) return echo.error();
  ask.echo = *echo;
  // Without an answer the prompt is only looked at.
  const auto max_tokens =
      number(body, "max_tokens", ask.echo ? limit_of("max_tokens") : kAnswerTokens,
             kDefaultCompletionTokens);
  if (!max_tokens.ok()) return max_tokens.error();
  (*request)["max_tokens"] = *max_tokens;
  auto prompts = read_prompts(body);
  if (!prompts.ok()) return prompts.error();
  if (ask.echo)
    for (const Json& prompt : *prompts) ask.prompts.push_back(text_of_prompt(prompt));
  const bool has_ids = std::count(ask.prompts.begin(), ask.prompts.end(), std::nullopt) > 0;
  if (ask.echo && (ask.wants_logprobs || has_ids || *max_tokens == 0))
    (*request)["prompt_logprobs"] =
        std::max(ask.n_prompt_logprobs, static_cast<std::int32_t>(ask.n_top_logprobs));
  ask.generation.n_prompts = prompts->size();
  auto requests = router_requests({std::move(*request), std::move(*prompts), ask.n},
                                  completion_fields(), rules);
  if (!requests.ok()) return requests.error();
  ask.generation.choices = std::move(*requests);
  return ask;
}

Result<TokensAsk> read_tokens(const OrderedJson& in_order, const std::string& op, bool strict) {
  const Json body(in_order);
  const auto fields = op == "tokenize" ? tokenize_fields() : detokenize_fields();
  auto sorted = sort_fields(body, fields, strict);
  if (!sorted.ok()) return sorted.error();
  sorted->request["op"] = op;
  if (op == "detokenize" && given(body, "tokens") == nullptr)
    return Error{ErrorCode::kInvalidRequest, "tokens is required", "tokens"};
  if (given(body, "messages") != nullptr) {
    const auto rules = read_chat_prompt(in_order, strict, sorted->request, sorted->ignored);
    if (!rules.ok()) return rules.error();
    sorted->request.erase("token_ends");
  } else if (sorted->request.value("continue_final_message", Json()) == false) {
    sorted->request.erase("continue_final_message");  // clients write out the default
  }
  auto request = router_request(sorted->request, fields);
  if (!request.ok()) return request.error();
  return TokensAsk{std::move(*request), std::move(sorted->ignored)};
}

}  // namespace foretoken::edge
