// Anthropic's protocol: /v1/messages and /v1/messages/count_tokens.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "services/edge/answer_events.h"
#include "services/edge/body_fields.h"
#include "services/edge/generation.h"
#include "services/edge/listed_model.h"
#include "services/edge/router_request.h"

namespace foretoken::edge {

std::span<const BodyField> message_fields();
std::span<const BodyField> count_fields();

struct AnthropicAsk {
  Generation generation;
  std::vector<std::string> ignored;
  std::string model;
  AnswerRules rules;
  bool hides_thoughts = false;  // thinking blocks without their text
  std::uint32_t max_tokens = 0;
};

// In the order of its keys, which a chat template shows to the model.
Result<AnthropicAsk> read_messages(const OrderedJson& body, bool strict);
// The same body, without max_tokens: a request that counts the tokens of the prompt.
Result<TokensAsk> read_count(const OrderedJson& body, bool strict);

std::unique_ptr<Encoder> message_encoder(const AnthropicAsk& ask,
                                         std::string id,
                                         std::string request_id);
Json anthropic_model(const ListedModel& model);
Json anthropic_models(const std::vector<ListedModel>& models);
std::string anthropic_error_body(const HttpError& error, const std::string& request_id);
// The status that Anthropic's clients know: 529 where a later try may succeed.
unsigned anthropic_status(const HttpError& error);

}  // namespace foretoken::edge
