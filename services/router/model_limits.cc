#include "services/router/model_limits.h"

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace foretoken {
namespace {

SamplingParams with_defaults_of_model(const SamplingDefaults& model,
                                      const wire::ClientRequest& request) {
  SamplingParams params = request.params;
  SamplingDefaults::fields(model, [&](int, const char* key, const auto& value, const char*) {
    if (request.given.contains(key)) return;
    SamplingParams::fields(
        params, [&](int, std::string_view name, auto& member, const Limit&, const char*, int = 0) {
          if constexpr (std::same_as<decltype(member), std::decay_t<decltype(value)>&>)
            if (name == key) member = value;
        });
  });
  return params;
}

}  // namespace

std::string prompt_key(const wire::ClientRequest& request) {
  switch (request.prompt_kind) {
    case wire::PromptKind::kTokens:
      return "token_ids";
    case wire::PromptKind::kMessages:
      return "messages";
    case wire::PromptKind::kText:
      return "prompt";
  }
  return "prompt";
}

Result<SamplingParams> params_at(const wire::Hello& target,
                                 const wire::ClientRequest& request,
                                 std::size_t n_prompt_tokens) {
  SamplingParams params = with_defaults_of_model(target.sampling, request);
  const auto n_prompt = static_cast<std::uint32_t>(n_prompt_tokens);
  const std::uint32_t limit = target.max_model_len;
  if (limit != 0 && n_prompt >= limit)
    return Error{ErrorCode::kContextLengthExceeded,
                 "prompt has " + std::to_string(n_prompt) + " tokens; the limit is " +
                     std::to_string(limit - 1) + " (model.max_model_len leaves one for the answer)",
                 prompt_key(request)};
  if (params.n_prompt_logprobs >= 0) {
    const auto n_likeliest = static_cast<std::size_t>(params.n_prompt_logprobs);
    if (const std::size_t most = wire::max_prompt_with_logprobs(n_likeliest);
        n_prompt_tokens > most)
      return Error{ErrorCode::kInvalidValue,
                   "prompt has " + std::to_string(n_prompt) +
                       " tokens; the limit with prompt_logprobs = " + std::to_string(n_likeliest) +
                       " is " + std::to_string(most),
                   "prompt_logprobs"};
  }
  if (!request.given.contains("max_tokens"))
    params.max_tokens =
        limit == 0 ? kDefaultMaxTokens : std::min(kDefaultMaxTokens, limit - n_prompt);
  else if (limit != 0 && (params.max_tokens == kToEndOfContext || request.fit_max_tokens))
    params.max_tokens = std::min(params.max_tokens, limit - n_prompt);
  if (limit != 0 && params.max_tokens > limit - n_prompt)
    return Error{ErrorCode::kContextLengthExceeded,
                 "prompt has " + std::to_string(n_prompt) + " tokens and max_tokens is " +
                     std::to_string(params.max_tokens) + "; together the limit is " +
                     std::to_string(limit) + " (model.max_model_len)",
                 "max_tokens"};
  params.min_tokens = std::min(params.min_tokens, params.max_tokens);
  if (auto valid = validate(params, target.vocab_size); !valid.ok()) return valid.error();
  return params;
}

}  // namespace foretoken
