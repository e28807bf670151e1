// OpenAI's bodies: what happens to each field.
#include <algorithm>
#include <vector>

#include "services/edge/answer_constraint.h"
#include "services/edge/openai.h"
#include "services/edge/request_keys.h"
#include "services/edge/tools.h"

namespace foretoken::edge {
namespace {

using enum FieldUse;

// Of both endpoints, besides the other keys of sampling.
constexpr BodyField kCommon[] = {
    {"seed", kHonoured, "seed", kSeedNote},
    {"model", kHonoured, "model", "a served name; another is 404"},
    {"n", kHonoured, "", "answers, at most edge.max_choices; answer i is the same for every n", "",
     kChoicesLimit},
    {"stream", kHonoured, "", "server-sent events"},
    {"stream_options", kHonoured, "",
     "include_usage, and with it vLLM's continuous_usage_stats; others are named as ignored"},
    {"prediction", kHonoured, "", "text that the answer may resemble: used as guesses"},
    {"speculation", kHonoured, "",
     "of Foretoken: enabled, draft_len, proposer, adaptive, acceptance; report: chunks of chat "
     "have accepted_tokens and token_ids"},
    // vLLM's extensions
    {"prompt_logprobs", kHonoured, "",
     "likeliest tokens beside each of the prompt; not with stream", "prompt_logprobs"},
    {"return_token_ids", kHonoured, "return_prompt_token_ids",
     "prompt_token_ids of the prompt, token_ids of each choice"},
    {"skip_special_tokens", kHonoured, "skip_special_tokens"},
    {"priority", kHonoured, "priority"},
    // what constrains the answer's text: at most one of these
    {"response_format", kHonoured, "",
     "text; json_object: any JSON object; json_schema: what its schema allows. With one of these "
     "and the next ones the answer begins without reasoning, and tool_choice is \"none\"",
     "json_schema"},
    {"structured_outputs", kHonoured, "",
     "of vLLM, one of json (a schema), regex, choice (texts), grammar (GBNF) and "
     "json_object",
     "json_schema"},
    {"guided_json", kHonoured, "", "as structured_outputs.json", "json_schema"},
    {"guided_regex", kHonoured, "", "as structured_outputs.regex", "regex"},
    {"guided_choice", kHonoured, "", "as structured_outputs.choice", "", kChoicesOfTextLimit},
    {"guided_grammar", kHonoured, "", "as structured_outputs.grammar", "gbnf"},
    {"json_schema", kHonoured, "", "JSON Schema that the answer's text must satisfy, or its text",
     "json_schema"},
    {"grammar", kHonoured, "", "of llama.cpp: as gbnf; an empty one is none", "gbnf"},
    // accepted, without an effect
    {"choice", kIgnored, "", "n gives several answers"},
    {"length_penalty", kIgnored, "", "of beam search alone"},
    {"early_stopping", kIgnored, "", "of beam search alone"},
    {"spaces_between_special_tokens", kIgnored},
    {"request_id", kIgnored, "", "send the header x-request-id"},
    {"user", kIgnored},
    {"metadata", kIgnored},
    {"store", kIgnored},
    {"service_tier", kIgnored},
    {"safety_identifier", kIgnored},
    {"prompt_cache_key", kIgnored, "", "prefixes are found by their tokens"},
    {"prompt_cache_options", kIgnored},
    {"prompt_cache_retention", kIgnored},
    {"suffix", kRefused, "", "these models continue a text"},
    {"cache_salt", kRefused, "", "a key of its own separates prefix caches"},
    {"use_beam_search", kRefused},
    {"allowed_token_ids", kRefused, "", "use logit_bias"},
    {"truncate_prompt_tokens", kRefused, "", "a prompt is read whole or refused"},
    {"return_tokens_as_token_ids", kRefused},
    {"logits_processors", kRefused},
    {"kv_transfer_params", kRefused},
    {"vllm_xargs", kRefused},
};

constexpr BodyField kChatOnly[] = {
    {"messages", kHonoured, "",
     "content: a string, or parts of type text; tool_calls, tool_call_id, reasoning_content; other "
     "keys are ignored and named"},
    {"max_completion_tokens", kHonoured, "", "absent = to the end of the context", "",
     kAnswerTokens},
    {"max_tokens", kHonoured, "", "the same, older; max_completion_tokens wins", "", kAnswerTokens},
    {"logprobs", kHonoured, "", "true or false"},
    {"top_logprobs", kHonoured, "", "with logprobs: likeliest tokens beside each", "logprobs"},
    {"add_generation_prompt", kHonoured, "add_generation_prompt"},
    {"tools", kHonoured, "",
     "of type function; strict has no effect: arguments are the model's own", "", kToolsLimit},
    {"tool_choice", kHonoured, "",
     "auto, none; required or a function: the answer begins with a call, without reasoning; "
     "allowed_tools: only those are called"},
    {"parallel_tool_calls", kHonoured, "", "false: what follows the first call is left out"},
    {"reasoning_effort", kHonoured, "",
     "the template's reasoning_effort, unless chat_template_kwargs has it"},
    {"verbosity", kIgnored},
    {"chat_template_kwargs", kHonoured, "", "variables of the template, such as enable_thinking"},
    {"continue_final_message", kHonoured, "continue_final_message",
     "the answer continues the last message"},
    {"functions", kRefused, "", "tools replaced it"},
    {"function_call", kRefused, "", "tool_choice replaced it"},
    {"modalities", kHonoured, "", "[\"text\"]; others are refused"},
    {"audio", kRefused},
    {"web_search_options", kRefused},
    {"moderation", kRefused},
    {"add_special_tokens", kIgnored, "", "the chat template writes them"},
    {"echo", kRefused, "", "use /v1/completions"},
    {"chat_template", kRefused, "", "the model's own is used"},
    {"documents", kRefused},
    {"mm_processor_kwargs", kRefused},
};

constexpr BodyField kCompletionOnly[] = {
    {"prompt", kHonoured, "", "one prompt or several, each a text or a list of token ids", "",
     kPromptsLimit},
    {"max_tokens", kHonoured, "", "absent = 16; 0 only with echo", "max_tokens"},
    {"logprobs", kHonoured, "", "likeliest tokens beside each", "logprobs"},
    {"echo", kHonoured, "", "the prompt comes before the answer"},
    {"best_of", kHonoured, "", "equal to n; others are refused", "", kChoicesLimit},
    {"add_special_tokens", kHonoured, "add_special_tokens"},
    {"prompt_embeds", kRefused, "", "a prompt is a text or token ids"},
};

constexpr BodyField kTokenize[] = {
    {"model", kHonoured, "model", "a served name; another is 404"},
    {"prompt", kHonoured, "prompt", "a text; or messages"},
    {"messages", kHonoured, "",
     "as for chat, with tools, tool_choice, reasoning_effort and chat_template_kwargs"},
    {"tools", kHonoured},
    {"tool_choice", kHonoured},
    {"reasoning_effort", kHonoured},
    {"chat_template_kwargs", kHonoured},
    {"add_special_tokens", kHonoured, "add_special_tokens"},
    {"add_generation_prompt", kHonoured, "add_generation_prompt"},
    {"continue_final_message", kHonoured, "continue_final_message"},
};

constexpr BodyField kDetokenize[] = {
    {"model", kHonoured, "model", "a served name; another is 404"},
    {"tokens", kHonoured, "token_ids", "token ids", "", entries(wire::kMaxDetokenizeIds)},
    {"skip_special_tokens", kHonoured, "skip_special_tokens"},
};

// The fields of an endpoint, then every key of sampling under its own name that no line has, then
// those of both endpoints: a new parameter needs no line here.
std::vector<BodyField> with_sampling(std::span<const BodyField> own) {
  const std::vector<BodyField> named = joined_fields(own, kCommon);
  std::vector<BodyField> sampling;
  for (const RequestKey& key : listed_keys())
    if (key.topic == wire::Topic::kSampling &&
        std::none_of(named.begin(), named.end(),
                     [&](const BodyField& field) { return field.name == key.name; }))
      sampling.push_back({key.name, kHonoured, key.name});
  return joined_fields(joined_fields(own, sampling), kCommon);
}

}  // namespace

std::span<const BodyField> chat_fields() {
  static const std::vector<BodyField> fields = with_sampling(kChatOnly);
  return fields;
}

std::span<const BodyField> completion_fields() {
  static const std::vector<BodyField> fields = with_sampling(kCompletionOnly);
  return fields;
}

std::span<const BodyField> tokenize_fields() { return kTokenize; }

std::span<const BodyField> detokenize_fields() { return kDetokenize; }

}  // namespace foretoken::edge
