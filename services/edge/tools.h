// What the protocols' requests share about tools: the tools that may be called, and the turns of a
// conversation that called them. From these come keys of the request to the router, for the model's
// chat template, and the rules by which the answer is read. Keys of JSON keep their order: a
// template shows them to the model.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/base/limit.h"
#include "common/base/result.h"
#include "common/base/vocabulary.h"
#include "services/edge/answer_events.h"

namespace foretoken::edge {

inline constexpr Limit kToolsLimit = entries(128);  // of one body

struct Tool {
  std::string name;
  std::string description;
  OrderedJson parameters;  // a schema; null = no arguments
};

struct ToolUse {
  std::vector<Tool> tools;
  ToolChoice choice = ToolChoice::kAuto;
  std::string name;  // with kRequired: this one; "" = any
  // Names of those that may be called; none = all. The prompt has all of them.
  std::optional<std::vector<std::string>> allowed;
  bool parallel = true;  // several calls in one answer
};

// "parallel_tool_calls" of OpenAI's bodies: true unless given.
Result<void> read_parallel_calls(const OrderedJson& body, ToolUse& use);
// A name of a tool in tool_choice. `where` names its place in errors.
Result<std::string> read_wanted_name(const OrderedJson& name, const std::string& where);
// Of a tool_choice of type allowed_tools: the mode, and that there is a list of tools, not empty.
// `where` names the object that has both. The names are for the protocol's reader to add.
Result<void> read_allowed_mode(const OrderedJson& allowed, const std::string& where, ToolUse& use);
// Names of letters, digits, _ and -, each once; those of tool_choice among them. `where` names the
// list in errors.
Result<void> check_tools(const ToolUse& use, const std::string& where);
// Puts them into a request to the router, and says how its answer is read.
AnswerRules use_tools(const ToolUse& use, Json& request);

struct PastCall {
  std::string id;
  std::string name;
  // An object; of a call whose arguments are none, their text: the conversation goes on all the
  // same, and the template shows what the model wrote.
  OrderedJson arguments;
};

// A turn of a conversation.
struct Turn {
  std::string role;  // system, user, assistant or tool
  Json content;      // a text, parts of type text, or null
  std::vector<PastCall> calls = {};
  std::string tool_call_id = {};  // tool: the call it answers
  std::string name = {};
  std::string reasoning = {};
};
Json turn_json(const Turn& turn);

// The text of a call's arguments, as a client sends it back -> PastCall::arguments. "" is an empty
// object. Control characters in strings may be raw. An object of more than kMaxOrderedKeys keys, or
// that is too deep for a message, stays a text.
OrderedJson past_arguments(const std::string& text);

}  // namespace foretoken::edge
