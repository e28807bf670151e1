#include "services/edge/openai_tools.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>

#include "common/base/nearest.h"
#include "services/edge/router_request.h"

namespace foretoken::edge {
namespace {

Result<PastCall> read_call(const OrderedJson& call, const std::string& where) {
  const OrderedJson& type = member(call, "type");
  if (!type.is_null() && type != "function")
    return Error{ErrorCode::kUnsupportedParameter,
                 where + " is of type " + to_text(type) + "; only function is read", where};
  const OrderedJson& function = member(call, "function");
  PastCall past{.id = text_or_empty(member(call, "id")),
                .name = text_or_empty(member(function, "name")),
                .arguments = OrderedJson::object()};
  if (past.id.empty() || past.name.empty())
    return invalid_value(where + " needs id, and function with name and arguments", where);
  const OrderedJson& arguments = member(function, "arguments");
  if (arguments.is_object()) {
    past.arguments = arguments;
  } else if (arguments.is_string()) {
    past.arguments = past_arguments(arguments.get<std::string>());
  } else if (!arguments.is_null()) {
    return invalid_value(where + ".function.arguments must be the text of a JSON object",
                         where + ".function.arguments");
  }
  return past;
}

constexpr std::string_view kReadOfMessage[] = {
    "role", "content", "name", "tool_calls", "reasoning", "reasoning_content", "tool_call_id"};

// Of assistants' messages, as clients send them back; none changes the prompt.
constexpr std::string_view kUnread[] = {"refusal",       "annotations", "audio",
                                        "function_call", "id",          "index"};

// The header that names them has room for fewer.
constexpr std::size_t kMostNamedKeys = 128;

// A key without a value says nothing.
void name_unknown_keys(const OrderedJson& message,
                       const std::string& where,
                       std::vector<std::string>& ignored) {
  const auto is_among = [](const auto& names, const std::string& name) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  for (const auto& [name, value] : message.items()) {
    if (ignored.size() >= kMostNamedKeys) return;
    const bool is_empty = value.is_null() || value.empty();
    if (!is_empty && !is_among(kReadOfMessage, name) && !is_among(kUnread, name))
      ignored.push_back(where + "." + name);
  }
}

// A text, or parts of type text, of which there is one at least.
Result<void> check_content(const OrderedJson& content, const std::string& where) {
  if (content.is_string()) return {};
  if (!content.is_array() || content.empty())
    return invalid_value(where + " is " + (content.is_array() ? "empty" : to_text(content)) +
                             "; it must be a text or a list of parts of type text, not empty",
                         where);
  for (std::size_t i = 0; i < content.size(); ++i) {
    const std::string place = where + "[" + std::to_string(i) + "]";
    const OrderedJson& type = member(content[i], "type");
    if (!content[i].is_object())
      return invalid_value(place + " is no part: it must be {\"type\": \"text\", \"text\": ...}",
                           place);
    if (type != "text")
      return invalid_value(place + " is a part of type " + to_text(type) + "; only text is read",
                           place);
    if (!member(content[i], "text").is_string())
      return invalid_value(
          place + ".text is " + to_text(member(content[i], "text")) + "; it must be a text",
          place + ".text");
  }
  return {};
}

// What a user says, there is; others may have said nothing: an assistant that called a tool or
// thought alone, a tool that has no answer. Clients leave out the key, or send null or [].
bool may_be_empty(const OrderedJson& content, const std::string& role) {
  return role != "user" && (content.is_null() || (content.is_array() && content.empty()));
}

constexpr std::array<std::string_view, 5> kRoles{"system", "developer", "user", "assistant",
                                                 "tool"};

Result<Turn> read_turn(const OrderedJson& message,
                       const std::string& where,
                       std::set<std::string>& call_ids,
                       std::vector<std::string>& ignored) {
  if (!message.is_object()) return invalid_value(where + " is no message", where);
  name_unknown_keys(message, where, ignored);
  const OrderedJson& role = member(message, "role");
  if (std::find(std::begin(kRoles), std::end(kRoles), text_or_empty(role)) == std::end(kRoles))
    return invalid_value(
        where + ".role is " + to_text(role) + "; it must be " + alternatives(kRoles),
        where + ".role");
  Turn turn{.role = text_or_empty(member(message, "role")),
            .content = Json(member(message, "content"))};
  turn.name = text_or_empty(member(message, "name"));
  turn.reasoning = text_or_empty(member(message, "reasoning_content"));
  if (turn.reasoning.empty()) turn.reasoning = text_or_empty(member(message, "reasoning"));
  const OrderedJson& calls = member(message, "tool_calls");
  if (!calls.is_null() && !calls.is_array())
    return invalid_value(where + ".tool_calls must be a list", where + ".tool_calls");
  if (!calls.empty() && turn.role != "assistant")
    return invalid_value(where + ".tool_calls are the assistant's alone", where + ".tool_calls");
  for (std::size_t i = 0; i < calls.size(); ++i) {
    auto call = read_call(calls[i], where + ".tool_calls[" + std::to_string(i) + "]");
    if (!call.ok()) return call.error();
    call_ids.insert(call->id);
    turn.calls.push_back(std::move(*call));
  }
  if (turn.role == "tool") {
    turn.tool_call_id = text_or_empty(member(message, "tool_call_id"));
    if (!call_ids.contains(turn.tool_call_id))
      return invalid_value(
          where + ".tool_call_id is \"" + turn.tool_call_id + "\"; no call before it has this id",
          where + ".tool_call_id");
  }
  if (!message.contains("content") && turn.role == "user")
    return invalid_value(where + " has no content", where + ".content");
  const OrderedJson& content = member(message, "content");
  if (!may_be_empty(content, turn.role))
    if (const auto good = check_content(content, where + ".content"); !good.ok())
      return good.error();
  return turn;
}

Result<Tool> read_tool(const OrderedJson& tool,
                       const std::string& where,
                       std::vector<std::string>& ignored) {
  const OrderedJson& type = member(tool, "type");
  const OrderedJson& function = member(tool, "function");
  if (type != "function" || !function.is_object())
    return Error{ErrorCode::kUnsupportedParameter,
                 where + " is of type " + to_text(type) +
                     "; only {\"type\": \"function\", \"function\": {...}} is supported",
                 where};
  const OrderedJson& parameters = member(function, "parameters");
  if (!parameters.is_null() && !parameters.is_object())
    return invalid_value(where + ".function.parameters must be a JSON schema",
                         where + ".function.parameters");
  if (member(function, "strict") == true) ignored.push_back(where + ".function.strict");
  return Tool{.name = text_or_empty(member(function, "name")),
              .description = text_or_empty(member(function, "description")),
              .parameters = parameters};
}

// {"type": "allowed_tools", "allowed_tools": {"mode": ..., "tools": [...]}}
Result<void> read_allowed_tools(const OrderedJson& choice, ToolUse& use) {
  const std::string where = "tool_choice.allowed_tools";
  const OrderedJson& allowed = member(choice, "allowed_tools");
  if (const auto done = read_allowed_mode(allowed, where, use); !done.ok()) return done.error();
  const OrderedJson& entries = member(allowed, "tools");
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::string place = where + ".tools[" + std::to_string(i) + "]";
    const OrderedJson& type = member(entries[i], "type");
    if (type != "function")
      return Error{
          ErrorCode::kUnsupportedParameter,
          place + " is of type " + to_text(type) +
              "; only {\"type\": \"function\", \"function\": {\"name\": ...}} is supported",
          "tool_choice"};
    auto name =
        read_wanted_name(member(member(entries[i], "function"), "name"), place + ".function.name");
    if (!name.ok()) return name.error();
    use.allowed->push_back(std::move(*name));
  }
  return {};
}

Result<void> read_tool_choice(const OrderedJson& choice, ToolUse& use) {
  if (choice.is_null()) return {};
  const std::string word = text_or_empty(choice);
  if (const auto named = value_named<ToolChoice>(word)) {
    use.choice = *named;
    return {};
  }
  if (member(choice, "type") == "function") {
    auto name =
        read_wanted_name(member(member(choice, "function"), "name"), "tool_choice.function.name");
    if (!name.ok()) return name.error();
    use.choice = ToolChoice::kRequired;
    use.name = std::move(*name);
    return {};
  }
  if (member(choice, "type") == "allowed_tools") return read_allowed_tools(choice, use);
  return Error{ErrorCode::kUnsupportedParameter,
               "tool_choice " + to_text(choice) +
                   " is not supported; it may be \"auto\", \"none\", \"required\", {\"type\": "
                   "\"function\", \"function\": {\"name\": ...}} or {\"type\": \"allowed_tools\", "
                   "\"allowed_tools\": {\"mode\": ..., \"tools\": [...]}}",
               "tool_choice"};
}

}  // namespace

Result<Json> read_conversation(const OrderedJson& body, std::vector<std::string>& ignored) {
  const OrderedJson& messages = member(body, "messages");
  if (messages.is_null())
    return Error{ErrorCode::kInvalidRequest, "messages is required", "messages"};
  if (!messages.is_array()) return invalid_value("messages must be a list", "messages");
  std::set<std::string> call_ids;
  Json turns = Json::array();
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string where = "messages[" + std::to_string(i) + "]";
    const auto turn = read_turn(messages[i], where, call_ids, ignored);
    if (!turn.ok()) return turn.error();
    turns.push_back(turn_json(*turn));
  }
  return turns;
}

Result<ToolUse> read_tool_use(const OrderedJson& body, std::vector<std::string>& ignored) {
  ToolUse use;
  const OrderedJson& tools = member(body, "tools");
  if (!tools.is_null() && !tools.is_array()) return invalid_value("tools must be a list", "tools");
  for (std::size_t i = 0; i < tools.size(); ++i) {
    auto tool = read_tool(tools[i], "tools[" + std::to_string(i) + "]", ignored);
    if (!tool.ok()) return tool.error();
    use.tools.push_back(std::move(*tool));
  }
  if (const auto done = read_tool_choice(member(body, "tool_choice"), use); !done.ok())
    return done.error();
  if (const auto done = read_parallel_calls(body, use); !done.ok()) return done.error();
  if (const auto good = check_tools(use, "tools"); !good.ok()) return good.error();
  return use;
}

}  // namespace foretoken::edge
