// How a request wants its tokens chosen and when it ends. Plain data with one validator, because
// the front door, the wire, the target and the draft must all mean the same thing. Defaults are "as
// the model says, nothing special".
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/base/ids.h"
#include "common/base/result.h"

namespace foretoken {

inline constexpr std::uint32_t kMaxDraftTokens = 32;  // most proposed tokens in a round
inline constexpr std::size_t kMaxStopStrings = 16;
inline constexpr std::size_t kMaxStopStringBytes = 256;
inline constexpr std::size_t kMaxStopTokens = 64;
inline constexpr std::size_t kMaxLogitBias = 300;
inline constexpr std::size_t kMaxBadWords = 64;  // as a client gives them
inline constexpr std::size_t kMaxBadWordForms =
    2 * kMaxBadWords;  // each as it is and behind a space
inline constexpr std::size_t kMaxBadWordTokens = 16;

struct SamplingParams {
  float temperature = 1.0f;                           // 0 = greedy; 0 .. 100
  std::uint32_t top_k = 0;                            // 0 = off
  float top_p = 1.0f;                                 // (0, 1]
  float min_p = 0.0f;                                 // [0, 1)
  float repetition_penalty = 1.0f;                    // (0, 100]
  float presence_penalty = 0.0f;                      // [-2, 2]
  float frequency_penalty = 0.0f;                     // [-2, 2]
  std::vector<std::pair<TokenId, float>> logit_bias;  // token -> added to its logit, -100 .. 100
  // Token sequences that must not appear in the answer.
  std::vector<std::vector<TokenId>> bad_words;
  std::uint64_t seed = 0;
  std::uint32_t choice = 0;       // index among n parallel answers: part of the noise key
  std::uint32_t max_tokens = 16;  // >= 1
  // End and stop tokens are masked before; stop strings that these complete are text.
  std::uint32_t min_tokens = 0;
  std::vector<TokenId> stop_token_ids;  // besides the model's own end tokens
  bool ignore_eos = false;              // the model's end tokens do not end the answer
  std::int32_t n_logprobs = -1;  // -1 none, 0 the chosen token's, n <= 20 also the n likeliest
  bool operator==(const SamplingParams&) const = default;
};

// Range checks that need no model. vocab_size > 0 also checks every token id. The error names
// field, value and limit.
Result<void> validate(const SamplingParams& params, std::int64_t vocab_size);

}  // namespace foretoken
