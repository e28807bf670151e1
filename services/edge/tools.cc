#include "services/edge/tools.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <utility>

#include "services/edge/call_object.h"
#include "services/edge/router_request.h"

namespace foretoken::edge {
namespace {

// Anthropic's limit, for all protocols: clients of MCP put the server's name before a tool's, which
// comes to more than OpenAI's 64.
constexpr std::size_t kMaxToolNameBytes = 128;
static_assert(kMaxToolNameBytes <= wire::kMaxNameBytes);  // as tool_name of a request
// Of the text that turn_json() makes of a call, which is parsed with the limits of JsonLimits.
constexpr std::size_t kLevelsAroundArguments = 4;

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
    return invalid_value("tool_choice needs the name of a tool in " + where, "tool_choice");
  return text;
}

Result<void> read_allowed_mode(const OrderedJson& allowed, const std::string& where, ToolUse& use) {
  const OrderedJson& mode = member(allowed, "mode");
  if (mode != "auto" && mode != "required")
    return invalid_value(where + ".mode is " + to_text(mode) + "; it must be auto or required",
                         "tool_choice");
  const OrderedJson& entries = member(allowed, "tools");
  if (!entries.is_array() || entries.empty())
    return invalid_value(where + ".tools must be a list that is not empty", "tool_choice");
  if (entries.size() > kToolsLimit.most)
    return invalid_value(where + ".tools has " + std::to_string(entries.size()) +
                             " entries; the limit is " + std::to_string(kToolsLimit.most),
                         "tool_choice");
  use.choice = mode == "required" ? ToolChoice::kRequired : ToolChoice::kAuto;
  use.allowed.emplace();
  return {};
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
  std::vector<std::string> wanted;
  if (use.allowed) wanted = *use.allowed;
  if (!use.name.empty()) wanted.push_back(use.name);
  for (const std::string& name : wanted)
    if (!names.contains(name))
      return invalid_value("tool_choice names " + name + ", which is not among the tools",
                           "tool_choice");
  const bool has_callable = use.allowed ? !use.allowed->empty() : !use.tools.empty();
  if (use.choice == ToolChoice::kRequired && !has_callable)
    return invalid_value("tool_choice asks for a call, and there is no tool that may be called",
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
  if (use.allowed) rules.tool_names = *use.allowed;
  rules.checks_names = use.allowed.has_value();
  request["tools"] = to_text(tools);
  request["tool_choice"] = name_of(use.choice);
  const bool leaves_one =
      use.choice == ToolChoice::kRequired && use.allowed && use.allowed->size() == 1;
  const std::string& name = leaves_one ? use.allowed->front() : use.name;
  if (!name.empty()) request["tool_name"] = name;
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

OrderedJson past_arguments(const std::string& text) {
  if (text.empty()) return OrderedJson::object();
  const std::string json = escape_controls(text);
  const auto value = parse_json(json, {.max_depth = JsonLimits{}.max_depth - kLevelsAroundArguments,
                                       .max_keys = kMaxOrderedKeys});
  return value.ok() && value->is_object() ? OrderedJson::parse(json) : OrderedJson(text);
}

}  // namespace foretoken::edge
