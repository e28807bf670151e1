// OpenAI's protocol: /v1/chat/completions, /v1/completions, /v1/models, with the extensions that
// vLLM's clients use.
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
#include "services/edge/router_request.h"

namespace foretoken::edge {

inline constexpr Limit kPromptsLimit = entries(128);  // of one body of /v1/completions

std::span<const BodyField> chat_fields();
std::span<const BodyField> completion_fields();

// What of a request its answer needs.
struct OpenAiOptions {
  std::string model;  // as asked for
  std::string tenant;
  bool include_usage = false;
  bool continuous_usage = false;
  bool reports_guesses = false;  // chunks say how many of their tokens were guessed
  bool wants_logprobs = false;
  std::uint32_t n_top_logprobs = 0;
  std::int32_t n_prompt_logprobs = -1;  // likeliest tokens beside each of the prompt; -1 = none
  bool returns_token_ids = false;
  std::size_t n = 1;  // answers for each prompt
  bool echo = false;  // completions: the prompt comes before the answer
  std::vector<std::optional<std::string>> prompts;  // with echo; nothing: it was given as token ids
  AnswerRules rules;  // chat: how an answer is read; its key is each choice's own
};

struct OpenAiAsk : OpenAiOptions {
  Generation generation;
  std::vector<std::string> ignored;  // unknown fields
};

// In the order of its keys, which a chat template shows to the model, and an answer to a schema
// has.
Result<OpenAiAsk> read_chat(const OrderedJson& body, const BodyRules& rules);
Result<OpenAiAsk> read_completion(const OrderedJson& body, const BodyRules& rules);

// vLLM's /tokenize and /detokenize.
std::span<const BodyField> tokenize_fields();
std::span<const BodyField> detokenize_fields();
Result<TokensAsk> read_tokens(const OrderedJson& body, const std::string& op, bool strict);

// `created` in seconds since 1970.
std::unique_ptr<Encoder> chat_encoder(const OpenAiAsk& ask,
                                      const std::string& id,
                                      std::int64_t created);
std::unique_ptr<Encoder> completion_encoder(const OpenAiAsk& ask,
                                            const std::string& id,
                                            std::int64_t created);

// vLLM's keys for what one answer took, which benchmarks read.
OrderedJson metrics_json(const wire::ClientReply& reply);
// One entry a token, with at most n_top of the likeliest.
OrderedJson logprobs_json(const std::vector<wire::LogprobEntry>& entries, std::size_t n_top);

std::string openai_error_body(const HttpError& error);
// A model under one of its names, and every model under all of them.
Json openai_model(const std::string& name, const wire::ModelStatus& model, std::int64_t created);
Json openai_models(const std::vector<wire::ModelStatus>& models, std::int64_t created);

}  // namespace foretoken::edge
