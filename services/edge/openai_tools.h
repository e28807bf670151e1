// Of a body for /v1/chat/completions: the conversation, and the tools that its answer may call.
#pragma once

#include <string>
#include <vector>

#include "services/edge/tools.h"

namespace foretoken::edge {

// messages, as the router takes them: text of calls' arguments as objects, each answer to a call
// after that call. Keys of a message that nothing reads are added to `ignored`, such as
// messages[2].cache_control.
Result<Json> read_conversation(const OrderedJson& body, std::vector<std::string>& ignored);
// tools, tool_choice, parallel_tool_calls. What is accepted without an effect is added to
// `ignored`.
Result<ToolUse> read_tool_use(const OrderedJson& body, std::vector<std::string>& ignored);

}  // namespace foretoken::edge
