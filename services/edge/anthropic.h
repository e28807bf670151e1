// Anthropic's protocol: /v1/messages and /v1/messages/count_tokens.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "services/edge/body_fields.h"
#include "services/edge/generation.h"

namespace foretoken::edge {

std::span<const BodyField> message_fields();

struct AnthropicAsk {
  Generation generation;
  std::vector<std::string> ignored;
  std::string model;
};

Result<AnthropicAsk> read_messages(const Json& body, bool strict);
// The same body, without max_tokens: a request that counts the tokens of the prompt.
Result<wire::ClientRequest> read_count(const Json& body);

std::unique_ptr<Encoder> message_encoder(const AnthropicAsk& ask,
                                         std::string id,
                                         std::string request_id);
std::string anthropic_error_body(const HttpError& error, const std::string& request_id);
// The status that Anthropic's clients know: 529 where a later try may succeed.
unsigned anthropic_status(const HttpError& error);

}  // namespace foretoken::edge
