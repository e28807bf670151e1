// The flags of a request: one for each key of its listing (common/messages/client.h), so that a new
// parameter has its flag at once.
#pragma once

#include <CLI/CLI.hpp>
#include <set>
#include <string_view>

#include "common/messages/client.h"

namespace foretoken::cli {

// Keys whose flag is no flag of the command: the prompt is the verb's own, seconds are said in
// --timeout, and the rest is the command's own business.
inline const std::set<std::string_view> kNoFlags{
    "op", "prompt", "messages", "token_ids", "stream", "timeout_ms",
    // of conversations with tools, which a line does not have
    "continue_final_message", "tools", "tool_choice", "tool_name", "chat_template_kwargs",
    "token_ends"};
// Keys that a conversation has no use for.
inline const std::set<std::string_view> kNotInChat{
    "logprobs",           "prompt_logprobs",       "request_id",
    "add_special_tokens", "add_generation_prompt", "n"};

// Adds them to `sub`, all but those of the keys in `without`. `request` gets what the flags say and
// must live as long as `sub`.
void add_request_flags(CLI::App* sub,
                       wire::ClientRequest& request,
                       const std::set<std::string_view>& without);

}  // namespace foretoken::cli
