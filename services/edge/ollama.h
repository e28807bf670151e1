// The questions that programs made for Ollama ask about a server and its models. Such a program
// then speaks OpenAI's protocol; Ollama's own chat is not here. Only with edge.ollama.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/messages/client.h"
#include "services/edge/body_fields.h"

namespace foretoken::edge {

// Clients compare it: that of an Ollama which has these answers.
inline constexpr const char* kOllamaVersion = "0.11.0";

std::span<const BodyField> show_fields();
struct ShowAsk {
  std::string model;
  std::vector<std::string> ignored;
};
Result<ShowAsk> read_show(const Json& body, bool strict);

// `since` in seconds since 1970: when the models were served first.
Json ollama_tags(const wire::StatusReply& status, std::int64_t since);
Json ollama_ps(const wire::StatusReply& status, std::int64_t since);
Result<Json> ollama_show(const wire::StatusReply& status,
                         const std::string& model,
                         std::int64_t since);

}  // namespace foretoken::edge
