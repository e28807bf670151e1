// OpenAI's /v1/responses without a memory: a client sends the whole history each time, nothing is
// kept, and what would need a stored answer is refused by name.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "services/edge/answer_events.h"
#include "services/edge/body_fields.h"
#include "services/edge/generation.h"

namespace foretoken::edge {

std::span<const BodyField> response_fields();

// What of a request its answer needs.
struct ResponsesOptions {
  std::string model;
  AnswerRules rules;
  bool wants_logprobs = false;
  std::uint32_t n_top_logprobs = 0;
  // The fields of the request that the answer repeats, each with its default. Most of them are the
  // members of an object as its text has them, without the braces: a tree of the tools takes
  // several times the memory of the body, which is what counts until the answer is whole.
  std::string echo;
  OrderedJson temperature, top_p;
};

struct ResponsesAsk : ResponsesOptions {
  Generation generation;
  std::vector<std::string> ignored;
};

// In the order of its keys, which a chat template shows to the model.
Result<ResponsesAsk> read_responses(const OrderedJson& body, bool strict);
// The answer repeats how it was sampled: where the request does not say, by the model's defaults.
void repeat_defaults(const SamplingDefaults& model, ResponsesAsk& ask);
// What would need an answer from before; nothing if the body has no such field.
std::optional<HttpError> needs_memory(const OrderedJson& body);

// `created` in seconds since 1970.
std::unique_ptr<Encoder> responses_encoder(const ResponsesAsk& ask,
                                           std::string id,
                                           std::int64_t created);

}  // namespace foretoken::edge
