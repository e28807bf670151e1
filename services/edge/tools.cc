#include "services/edge/tools.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <utility>

#include "services/edge/router_request.h"

namespace foretoken::edge {
namespace {

constexpr std::size_t kMaxToolNameBytes = 64;

bool is_name(const std::string& name) {
  return !name.empty() && name.size() <= kMaxToolNameBytes &&
         std::all_of(name.begin(), name.end(),
                     [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-'; });
}

OrderedJson tool_json(const Tool& tool) {
  OrderedJson function = {{"name", tool.name}};
  if (!tool.description.empty()) function["description"] = tool.description;
  function["parameters"] =
      tool.parameters.is_null()
          ? OrderedJson({{"type", "object"}, {"properties", OrderedJson::object()}})
          : tool.parameters;
  return {{"type", "function"}, {"function", std::move(function)}};
}

}  // namespace

Result<void> read_parallel_calls(const OrderedJson& body, ToolUse& use) {
  const OrderedJson& parallel = member(body, "parallel_tool_calls");
  if (!parallel.is_null() && !parallel.is_boolean())
    return invalid_value("parallel_tool_calls must be true or false", "parallel_tool_calls");
  use.parallel = parallel.is_null() || parallel == true;
  return {};
}

Result<std::string> read_wanted_name(const OrderedJson& name, const std::string& where) {
  std::string text = text_or_empty(name);
  if (text.empty())
    return invalid_value("tool_choice asks for one tool and has no name in " + where,
                         "tool_choice");
  return text;
}

Result<void> check_tools(const ToolUse& use, const std::string& where) {
  if (use.tools.size() > kToolsLimit.most)
    return invalid_value(where + " has " + std::to_string(use.tools.size()) +
                             " entries; the limit is " + std::to_string(kToolsLimit.most),
                         where);
  std::set<std::string> names;
  for (std::size_t i = 0; i < use.tools.size(); ++i) {
    const std::string& name = use.tools[i].name;
    const std::string place = where + "[" + std::to_string(i) + "]";
    if (!is_name(name))
      return invalid_value(place + " has the name \"" + name + "\"; a name has 1 to " +
                               std::to_string(kMaxToolNameBytes) + " letters, digits, _ and -",
                           place);
    if (!names.insert(name).second)
      return invalid_value(place + " has the name " + name + ", as one before it", place);
  }
  if (use.choice == ToolChoice::kRequired && use.tools.empty())
    return invalid_value("tool_choice asks for a call, and there are no tools", "tool_choice");
  if (!use.name.empty() && !names.contains(use.name))
    return invalid_value("tool_choice names " + use.name + ", which is not among the tools",
                         "tool_choice");
  return {};
}

AnswerRules use_tools(const ToolUse& use, Json& request) {
  AnswerRules rules;
  request["token_ends"] = true;
  if (use.tools.empty()) return rules;
  OrderedJson tools = OrderedJson::array();
  for (const Tool& tool : use.tools) {
    tools.push_back(tool_json(tool));
    rules.tool_names.push_back(tool.name);
  }
  request["tools"] = to_text(tools);
  request["tool_choice"] = name_of(use.choice);
  if (!use.name.empty()) request["tool_name"] = use.name;
  rules.may_call = use.choice != ToolChoice::kNone;
  rules.one_call = !use.parallel;
  return rules;
}

Json turn_json(const Turn& turn) {
  OrderedJson extra = OrderedJson::object();
  if (!turn.name.empty()) extra["name"] = turn.name;
  if (!turn.reasoning.empty()) extra["reasoning_content"] = turn.reasoning;
  for (const PastCall& call : turn.calls)
    extra["tool_calls"].push_back(
        {{"id", call.id},
         {"type", "function"},
         {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  if (!turn.tool_call_id.empty()) extra["tool_call_id"] = turn.tool_call_id;
  Json message = {{"role", turn.role}, {"content", turn.content}};
  if (!extra.empty()) message["extra"] = to_text(extra);
  return message;
}

Result<OrderedJson> arguments_object(const std::string& text, const std::string& where) {
  if (text.empty()) return OrderedJson(OrderedJson::object());
  const auto value = parse_json(text, {.max_keys = kMaxOrderedKeys});
  if (!value.ok()) return invalid_value(where + " is no JSON: " + value.error().message, where);
  if (!value->is_object()) return invalid_value(where + " must be a JSON object", where);
  return OrderedJson::parse(text);
}

}  // namespace foretoken::edge
