// OpenAI's protocol: /v1/chat/completions, /v1/completions, /v1/models, with the extensions that
// vLLM's clients use.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "services/edge/body_fields.h"
#include "services/edge/generation.h"

namespace foretoken::edge {

std::span<const BodyField> chat_fields();
std::span<const BodyField> completion_fields();

// What of a request its answer needs.
struct OpenAiAsk {
  Generation generation;
  std::vector<std::string> ignored;  // unknown fields
  std::string model;                 // as asked for
  std::string tenant;
  bool include_usage = false;
  bool continuous_usage = false;
  bool reports_guesses = false;  // chunks say how many of their tokens were guessed
  bool wants_logprobs = false;
  std::uint32_t n_top_logprobs = 0;
  std::size_t n = 1;                 // answers for each prompt
  bool echo = false;                 // completions: the prompt comes before the answer
  std::vector<std::string> prompts;  // and each as text; "" of one given as token ids
};

Result<OpenAiAsk> read_chat(const Json& body, bool strict);
Result<OpenAiAsk> read_completion(const Json& body, bool strict);

// vLLM's /tokenize and /detokenize.
std::span<const BodyField> tokenize_fields();
std::span<const BodyField> detokenize_fields();
Result<wire::ClientRequest> read_tokens(const Json& body, const std::string& op);

// `created` in seconds since 1970.
std::unique_ptr<Encoder> chat_encoder(const OpenAiAsk& ask, std::string id, std::int64_t created);
std::unique_ptr<Encoder> completion_encoder(const OpenAiAsk& ask,
                                            std::string id,
                                            std::int64_t created);

std::string openai_error_body(const HttpError& error);
Json openai_model(const std::string& name, std::int64_t created);
Json openai_models(const std::vector<std::string>& names, std::int64_t created);

}  // namespace foretoken::edge
