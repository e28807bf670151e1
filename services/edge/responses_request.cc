// A body of /v1/responses -> a request to the router.
#include <algorithm>
#include <set>
#include <utility>

#include "services/edge/answer_constraint.h"
#include "services/edge/responses.h"
#include "services/edge/router_request.h"
#include "services/edge/tools.h"

namespace foretoken::edge {
namespace {

using enum FieldUse;

constexpr BodyField kResponseFields[] = {
    {"model", kHonoured, "model", "a served name; another is 404"},
    {"input", kHonoured, "",
     "a text, or items: message of text parts, reasoning, function_call, function_call_output"},
    {"instructions", kHonoured, "", "the first message, of the system"},
    {"max_output_tokens", kHonoured, "", "absent = to the end of the context", "", kAnswerTokens},
    {"temperature", kHonoured, "temperature"},
    {"top_p", kHonoured, "top_p"},
    {"presence_penalty", kHonoured, "presence_penalty"},
    {"frequency_penalty", kHonoured, "frequency_penalty"},
    {"top_logprobs", kHonoured, "",
     "with include message.output_text.logprobs, else named as ignored", "logprobs"},
    {"include", kHonoured, "", "message.output_text.logprobs; others are named as ignored"},
    {"stream", kHonoured, "", "server-sent events"},
    {"text", kHonoured, "",
     "format: text, json_object or json_schema, which constrain the answer as response_format of "
     "chat; verbosity is named as ignored"},
    {"tools", kHonoured, "", "functions; others are skipped and named, and strict has no effect",
     "", kToolsLimit},
    {"tool_choice", kHonoured, "",
     "auto, none; required, or a function's name: the answer begins with a call; allowed_tools: "
     "only those are called"},
    {"parallel_tool_calls", kHonoured, "", "false: what follows the first call is left out"},
    {"reasoning", kHonoured, "",
     "effort: the template's reasoning_effort; summary is named as ignored"},
    {"truncation", kHonoured, "", "\"disabled\"; others are refused"},
    {"store", kHonoured, "", "taken; nothing is kept, and the answer says false"},
    {"metadata", kHonoured, "", "repeated in the answer"},
    {"speculation", kHonoured, "", kSpeculationNote},
    {"seed", kHonoured, "seed", kOwnSeedNote},
    {"previous_response_id", kRefused, "", "nothing is kept: send the whole history"},
    {"conversation", kRefused, "", "nothing is kept: send the whole history"},
    {"prompt", kRefused, "", "nothing is kept: send the text"},
    {"background", kRefused, "", "an answer comes while its client waits"},
    {"max_tool_calls", kIgnored},
    {"stream_options", kIgnored},
    {"user", kIgnored},
    {"safety_identifier", kIgnored},
    {"prompt_cache_key", kIgnored, "", "prefixes are found by their tokens"},
    {"prompt_cache_retention", kIgnored},
    {"prompt_cache_options", kIgnored},
    {"service_tier", kIgnored},
    {"client_metadata", kIgnored},
    {"context_management", kIgnored},
    {"background_options", kIgnored},
    {"access_programs", kIgnored},
    {"image", kRefused, "", "answers are text"},
    {"moderation", kRefused},
};

Error not_supported(std::string message, std::string param) {
  return {ErrorCode::kUnsupportedParameter, std::move(message), std::move(param)};
}

// A text, or parts of text of either side.
Result<std::string> content_text(const OrderedJson& content, const std::string& where) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array())
    return invalid_value(where + " must be a text or a list of parts", where);
  std::string text;
  for (std::size_t i = 0; i < content.size(); ++i) {
    const std::string place = where + "." + std::to_string(i);
    const OrderedJson& type = member(content[i], "type");
    if (type != "input_text" && type != "output_text" && type != "text" && type != "refusal" &&
        type != "reasoning_text")
      return not_supported(place + " is a part of type " + to_text(type) + "; only text is read",
                           place);
    const OrderedJson& words = member(content[i], type == "refusal" ? "refusal" : "text");
    if (!words.is_string()) return invalid_value(place + " has no text", place);
    text += words.get<std::string>();
  }
  return text;
}

// Items -> the turns of a conversation. What a model wrote in one turn is several items: thoughts,
// a message, calls.
class ItemReader {
 public:
  void add_text(const char* role, const std::string& text) {
    flush();
    turns_.push_back(turn_json({.role = role, .content = text}));
  }
  Result<void> add(const OrderedJson& item, const std::string& where) {
    if (!item.is_object()) return invalid_value(where + " is no item", where);
    const std::string type =
        item.contains("type") ? text_or_empty(member(item, "type")) : std::string("message");
    if (type == "message") return add_message(item, where);
    if (type == "reasoning") return add_thoughts(item, where);
    if (type == "function_call") return add_call(item, where);
    if (type == "function_call_output") return add_result(item, where);
    if (type == "item_reference")
      return not_supported(where +
                               " refers to an item that was kept, and nothing is kept here: set "
                               "store to false in the client, so that it sends the whole history",
                           where);
    return not_supported(
        where + " is an item of type " + to_text(member(item, "type")) +
            "; message, reasoning, function_call and function_call_output are read",
        where);
  }
  Json take() {
    flush();
    // Some clients probe the server with an empty input.
    if (turns_.empty()) add_text("user", "");
    return std::move(turns_);
  }

 private:
  Result<void> add_message(const OrderedJson& item, const std::string& where) {
    const std::string role = text_or_empty(member(item, "role"));
    if (role != "user" && role != "assistant" && role != "system" && role != "developer")
      return invalid_value(where + ".role is " + to_text(member(item, "role")) +
                               "; it must be user, assistant, system or developer",
                           where + ".role");
    const auto text = content_text(member(item, "content"), where + ".content");
    if (!text.ok()) return text.error();
    if (role != "assistant") return add_text(role.c_str(), *text), Result<void>();
    if (!turn_.calls.empty() || turn_.content != "") flush();
    turn_.content = *text;
    has_turn_ = true;
    return {};
  }
  Result<void> add_thoughts(const OrderedJson& item, const std::string& where) {
    flush();
    if (!member(item, "content").is_array()) return {};
    const auto text = content_text(member(item, "content"), where + ".content");
    if (!text.ok()) return text.error();
    turn_.reasoning = *text;
    return {};
  }
  Result<void> add_call(const OrderedJson& item, const std::string& where) {
    PastCall call{.id = text_or_empty(member(item, "call_id")),
                  .name = text_or_empty(member(item, "name")),
                  .arguments = past_arguments(text_or_empty(member(item, "arguments")))};
    if (call.id.empty() || call.name.empty())
      return invalid_value(where + " needs call_id and name", where);
    call_ids_.insert(call.id);
    turn_.calls.push_back(std::move(call));
    has_turn_ = true;
    return {};
  }
  Result<void> add_result(const OrderedJson& item, const std::string& where) {
    const std::string id = text_or_empty(member(item, "call_id"));
    if (!call_ids_.contains(id))
      return invalid_value(
          where + ".call_id is \"" + id + "\"; no function_call before it has this id",
          where + ".call_id");
    const auto text = content_text(member(item, "output"), where + ".output");
    if (!text.ok()) return text.error();
    flush();
    turns_.push_back(turn_json({.role = "tool", .content = *text, .tool_call_id = id}));
    return {};
  }
  void flush() {
    if (has_turn_) turns_.push_back(turn_json(turn_));
    turn_ = {.role = "assistant", .content = ""};
    has_turn_ = false;
  }

  Json turns_ = Json::array();
  Turn turn_{.role = "assistant", .content = ""};  // the assistant's, still growing
  bool has_turn_ = false;
  std::set<std::string> call_ids_;
};

Result<Json> input_messages(const OrderedJson& body) {
  ItemReader reader;
  const OrderedJson& instructions = member(body, "instructions");
  if (!instructions.is_null() && !instructions.is_string())
    return invalid_value("instructions must be a text", "instructions");
  if (instructions.is_string()) reader.add_text("system", instructions.get<std::string>());
  const OrderedJson& input = member(body, "input");
  if (input.is_null()) return Error{ErrorCode::kInvalidRequest, "input is required", "input"};
  if (!input.is_string() && !input.is_array())
    return invalid_value("input must be a text or a list of items", "input");
  if (input.is_string()) reader.add_text("user", input.get<std::string>());
  for (std::size_t i = 0; input.is_array() && i < input.size(); ++i)
    if (const auto done = reader.add(input[i], "input." + std::to_string(i)); !done.ok())
      return done.error();
  return reader.take();
}

// {"type": "allowed_tools", "mode": ..., "tools": [...]}. Entries that are no functions are skipped
// and named, as such tools are.
Result<void> read_response_allowed(const OrderedJson& choice,
                                   ToolUse& use,
                                   std::vector<std::string>& ignored) {
  if (const auto done = read_allowed_mode(choice, "tool_choice", use); !done.ok())
    return done.error();
  const OrderedJson& entries = member(choice, "tools");
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::string place = "tool_choice.tools." + std::to_string(i);
    if (member(entries[i], "type") != "function") {
      ignored.push_back(place);
      continue;
    }
    auto name = read_wanted_name(member(entries[i], "name"), place + ".name");
    if (!name.ok()) return name.error();
    use.allowed->push_back(std::move(*name));
  }
  return {};
}

Result<void> read_response_choice(const OrderedJson& choice,
                                  ToolUse& use,
                                  std::vector<std::string>& ignored) {
  if (choice.is_null()) return {};
  if (const auto named = value_named<ToolChoice>(text_or_empty(choice))) {
    use.choice = *named;
    return {};
  }
  if (member(choice, "type") == "function") {
    auto name = read_wanted_name(member(choice, "name"), "tool_choice.name");
    if (!name.ok()) return name.error();
    use.choice = ToolChoice::kRequired;
    use.name = std::move(*name);
    return {};
  }
  if (member(choice, "type") == "allowed_tools") return read_response_allowed(choice, use, ignored);
  return not_supported("tool_choice " + to_text(choice) +
                           " is not supported; it may be \"auto\", \"none\", \"required\", "
                           "{\"type\": \"function\", \"name\": ...} or {\"type\": "
                           "\"allowed_tools\", \"mode\": ..., \"tools\": [...]}",
                       "tool_choice");
}

// Tools that are no functions are skipped and named.
Result<ToolUse> read_response_tools(const OrderedJson& body, std::vector<std::string>& ignored) {
  ToolUse use;
  const OrderedJson& tools = member(body, "tools");
  if (!tools.is_null() && !tools.is_array()) return invalid_value("tools must be a list", "tools");
  for (std::size_t i = 0; i < tools.size(); ++i) {
    const std::string place = "tools." + std::to_string(i);
    if (member(tools[i], "type") != "function") {
      ignored.push_back(place);
      continue;
    }
    if (member(tools[i], "strict") == true) ignored.push_back(place + ".strict");
    const OrderedJson& parameters = member(tools[i], "parameters");
    if (!parameters.is_null() && !parameters.is_object())
      return invalid_value(place + ".parameters must be a JSON schema", place + ".parameters");
    use.tools.push_back({.name = text_or_empty(member(tools[i], "name")),
                         .description = text_or_empty(member(tools[i], "description")),
                         .parameters = parameters});
  }
  if (const auto done = read_response_choice(member(body, "tool_choice"), use, ignored); !done.ok())
    return done.error();
  if (const auto done = read_parallel_calls(body, use); !done.ok()) return done.error();
  if (const auto good = check_tools(use, "tools"); !good.ok()) return good.error();
  return use;
}

// The members of an object that are not among `read` and say something.
void name_unread(const Json& body,
                 const std::string& object,
                 std::string_view read,
                 std::vector<std::string>& ignored) {
  const Json* members = given(body, object.c_str());
  if (members == nullptr) return;
  for (const auto& [name, value] : members->items())
    if (name != read && !value.is_null()) ignored.push_back(object + "." + name);
}

Result<void> check_response_options(const Json& body) {
  for (const char* object : {"text", "reasoning"})
    if (const Json* value = given(body, object); value != nullptr && !value->is_object())
      return check_object(OrderedJson(*value), object);
  if (const Json* reasoning = given(body, "reasoning"); reasoning != nullptr) {
    const Json* effort = given(*reasoning, "effort");
    if (effort != nullptr && !effort->is_string())
      return invalid_value("reasoning.effort must be a text", "reasoning.effort");
  }
  const Json* truncation = given(body, "truncation");
  if (truncation != nullptr && *truncation != "disabled")
    return not_supported("truncation " + to_text(*truncation) +
                             " is not supported: a prompt is read whole or refused",
                         "truncation");
  return {};
}

Result<void> read_response_logprobs(const Json& body, Json& request, ResponsesAsk& ask) {
  const auto top = number(body, "top_logprobs", limit_of("logprobs"), 0);
  if (!top.ok()) return top.error();
  const Json include = body.value("include", Json());
  if (!include.is_null() && !include.is_array())
    return invalid_value("include must be a list", "include");
  constexpr const char* kLogprobs = "message.output_text.logprobs";
  for (std::size_t i = 0; i < include.size(); ++i) {
    const std::string place = "include." + std::to_string(i);
    if (!include[i].is_string())
      return invalid_value(place + " is " + to_text(include[i]) + "; it must be a text", place);
    if (include[i] != kLogprobs) ask.ignored.push_back("include." + include[i].get<std::string>());
  }
  ask.n_top_logprobs = static_cast<std::uint32_t>(*top);
  ask.wants_logprobs = std::find(include.begin(), include.end(), kLogprobs) != include.end();
  if (!ask.wants_logprobs && *top > 0) ask.ignored.emplace_back("top_logprobs");
  if (ask.wants_logprobs) request["logprobs"] = *top;
  return {};
}

OrderedJson echoed_tools(const ToolUse& use) {
  OrderedJson tools = OrderedJson::array();
  for (const Tool& tool : use.tools)
    tools.push_back({{"type", "function"},
                     {"name", tool.name},
                     {"description", tool.description},
                     {"parameters", tool.parameters},
                     {"strict", false}});
  return tools;
}

void read_echo(const OrderedJson& body, const ToolUse& use, ResponsesOptions& options) {
  const auto said = [&](const char* name, const OrderedJson& otherwise) -> OrderedJson {
    const OrderedJson& value = member(body, name);
    return value.is_null() ? otherwise : value;
  };
  const OrderedJson& format = member(member(body, "text"), "format");
  options.temperature = said("temperature", 1.0);
  options.top_p = said("top_p", 1.0);
  const OrderedJson echo = {
      {"instructions", said("instructions", nullptr)},
      {"tools", echoed_tools(use)},
      {"tool_choice", said("tool_choice", "auto")},
      {"truncation", "disabled"},
      {"parallel_tool_calls", use.parallel},
      {"text", {{"format", format.is_null() ? OrderedJson{{"type", "text"}} : format}}},
      {"presence_penalty", said("presence_penalty", 0.0)},
      {"frequency_penalty", said("frequency_penalty", 0.0)},
      {"top_logprobs", said("top_logprobs", 0)},
      {"reasoning", said("reasoning", {{"effort", nullptr}, {"summary", nullptr}})},
      {"max_output_tokens", said("max_output_tokens", nullptr)},
      {"max_tool_calls", nullptr},
      {"store", false},
      {"background", false},
      {"service_tier", "default"},
      {"metadata", said("metadata", OrderedJson::object())},
      {"safety_identifier", nullptr},
      {"prompt_cache_key", nullptr}};
  const std::string text = to_text(echo);
  options.echo = text.substr(1, text.size() - 2);
}

}  // namespace

std::span<const BodyField> response_fields() {
  static const std::vector<BodyField> fields = joined_fields(kResponseFields, kForeignConstraints);
  return fields;
}

std::optional<HttpError> needs_memory(const OrderedJson& body) {
  if (member(body, "previous_response_id").is_null()) return std::nullopt;
  HttpError error = http_error(400,
                               "previous_response_id names a response, and none is kept here: send "
                               "the whole history as input");
  error.param = "previous_response_id";
  error.code = "previous_response_not_found";
  return error;
}

void repeat_defaults(const SamplingDefaults& model, ResponsesAsk& ask) {
  const auto& given = ask.generation.choices.front().given;
  if (!given.contains("temperature")) ask.temperature = shortest(model.temperature);
  if (!given.contains("top_p")) ask.top_p = shortest(model.top_p);
}

Result<ResponsesAsk> read_responses(const OrderedJson& in_order, bool strict) {
  const Json body(in_order);
  if (const auto good = check_response_options(body); !good.ok()) return good.error();
  auto sorted = sort_fields(body, response_fields(), strict);
  if (!sorted.ok()) return sorted.error();
  ResponsesAsk ask;
  ask.ignored = std::move(sorted->ignored);
  name_unread(body, "reasoning", "effort", ask.ignored);
  name_unread(body, "text", "format", ask.ignored);
  Json request = std::move(sorted->request);
  const auto stream = flag(body, "stream");
  if (!stream.ok()) return stream.error();
  ask.generation.stream = *stream;
  const auto store = flag(body, "store");
  if (!store.ok()) return store.error();
  if (const Json* metadata = given(body, "metadata"); metadata != nullptr && !metadata->is_object())
    return invalid_value("metadata must be an object", "metadata");
  const auto max_tokens = number(body, "max_output_tokens", kAnswerTokens, kToEndOfContext);
  if (!max_tokens.ok()) return max_tokens.error();
  request["max_tokens"] = *max_tokens;
  if (const auto done = read_response_logprobs(body, request, ask); !done.ok()) return done.error();
  if (const auto done = read_speculation(body, request); !done.ok()) return done.error();
  auto messages = input_messages(in_order);
  if (!messages.ok()) return messages.error();
  request["messages"] = std::move(*messages);
  const auto use = read_response_tools(in_order, ask.ignored);
  if (!use.ok()) return use.error();
  ask.rules = use_tools(*use, request);
  if (const OrderedJson& effort = member(member(in_order, "reasoning"), "effort");
      effort.is_string())
    request["chat_template_kwargs"] = to_text(OrderedJson{{"reasoning_effort", effort}});
  auto constraint = read_format(member(member(in_order, "text"), "format"), "text.format");
  if (!constraint.ok()) return constraint.error();
  ask.generation.constraint_field = use_constraint(std::move(*constraint), request);
  auto whole = router_request(request, response_fields());
  if (!whole.ok()) return whole.error();
  ask.model = whole->model;
  ask.rules.key = answer_key(*whole);
  ask.generation.choices.push_back(std::move(*whole));
  read_echo(in_order, *use, ask);
  return ask;
}

}  // namespace foretoken::edge
