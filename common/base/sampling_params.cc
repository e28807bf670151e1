#include "common/base/sampling_params.h"

#include <cmath>
#include <string>

namespace foretoken {
namespace {

Error out_of_range(const char* field, const std::string& value, const char* limit) {
  return {ErrorCode::kInvalidValue, std::string(field) + " is " + value + "; it must be " + limit,
          field};
}

// NaN and infinities fail both comparisons, so they are refused without a case of their own.
bool within(float value, float low, float high) { return value >= low && value <= high; }

Result<void> check_token(const char* field, TokenId id, std::int64_t vocab_size) {
  if (id < 0 || (vocab_size > 0 && id >= vocab_size)) {
    return Error{ErrorCode::kInvalidValue,
                 std::string(field) + " has token id " + std::to_string(id) +
                     "; the vocabulary has " + std::to_string(vocab_size) + " tokens",
                 field};
  }
  return {};
}

Result<void> check_scalars(const SamplingParams& p) {
  if (!within(p.temperature, 0.0f, 100.0f))
    return out_of_range("temperature", std::to_string(p.temperature), "from 0 to 100");
  if (!(p.top_p > 0.0f && p.top_p <= 1.0f))
    return out_of_range("top_p", std::to_string(p.top_p), "above 0 and at most 1");
  if (!(p.min_p >= 0.0f && p.min_p < 1.0f))
    return out_of_range("min_p", std::to_string(p.min_p), "at least 0 and below 1");
  if (!(p.repetition_penalty > 0.0f && p.repetition_penalty <= 100.0f))
    return out_of_range("repetition_penalty", std::to_string(p.repetition_penalty),
                        "above 0 and at most 100");
  if (!within(p.presence_penalty, -2.0f, 2.0f))
    return out_of_range("presence_penalty", std::to_string(p.presence_penalty), "from -2 to 2");
  if (!within(p.frequency_penalty, -2.0f, 2.0f))
    return out_of_range("frequency_penalty", std::to_string(p.frequency_penalty), "from -2 to 2");
  if (p.top_k > 0x7fffffffu)
    return out_of_range("top_k", std::to_string(p.top_k), "at most 2147483647");
  if (p.max_tokens == 0) return out_of_range("max_tokens", "0", "at least 1");
  if (p.min_tokens > p.max_tokens)
    return out_of_range("min_tokens", std::to_string(p.min_tokens), "at most max_tokens");
  if (p.n_logprobs < -1 || p.n_logprobs > 20)
    return out_of_range("logprobs", std::to_string(p.n_logprobs), "at most 20");
  return {};
}

}  // namespace

Result<void> validate(const SamplingParams& p, std::int64_t vocab_size) {
  if (auto scalars = check_scalars(p); !scalars.ok()) return scalars;
  if (p.logit_bias.size() > kMaxLogitBias)
    return out_of_range("logit_bias", std::to_string(p.logit_bias.size()) + " entries",
                        "at most 300 entries");
  for (const auto& [id, bias] : p.logit_bias) {
    if (auto token = check_token("logit_bias", id, vocab_size); !token.ok()) return token;
    if (!within(bias, -100.0f, 100.0f))
      return out_of_range("logit_bias", std::to_string(bias), "from -100 to 100");
  }
  if (p.stop_token_ids.size() > kMaxStopTokens)
    return out_of_range("stop_token_ids", std::to_string(p.stop_token_ids.size()) + " entries",
                        "at most 64 entries");
  for (TokenId id : p.stop_token_ids)
    if (auto token = check_token("stop_token_ids", id, vocab_size); !token.ok()) return token;
  if (p.bad_words.size() > kMaxBadWordForms)
    return out_of_range("bad_words", std::to_string(p.bad_words.size()) + " entries",
                        "at most 128 entries");
  for (const auto& word : p.bad_words) {
    if (word.empty() || word.size() > kMaxBadWordTokens)
      return out_of_range("bad_words", "a word of " + std::to_string(word.size()) + " tokens",
                          "1 to 16 tokens long");
    for (TokenId id : word)
      if (auto token = check_token("bad_words", id, vocab_size); !token.ok()) return token;
  }
  return {};
}

}  // namespace foretoken
