// How a request wants its tokens chosen and when it ends: what the front door, the wire, the target
// and the draft must all mean alike. A parameter is one line of the listing: from it come the
// field of the record on the wire, the key of a client's request, its check, the reference pages
// and the flag of the command. Defaults are "as the model says, nothing special".
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/ids.h"
#include "common/base/limit.h"
#include "common/base/result.h"

namespace foretoken {

inline constexpr std::uint32_t kMaxDraftTokens = 32;  // most proposed tokens in a round
inline constexpr std::size_t kMaxStopStrings = 16;
inline constexpr std::size_t kMaxStopStringBytes = 256;
inline constexpr std::size_t kMaxStopTokens = 64;
inline constexpr std::size_t kMaxLogitBias = 300;
inline constexpr std::size_t kMaxBadWords = 64;  // as a client gives them
inline constexpr std::size_t kMaxBadWordForms =
    3 * kMaxBadWords;  // each as it is, behind a space and behind other text
inline constexpr std::size_t kMaxBadWordTokens = 16;
inline constexpr std::size_t kMaxConstraintBytes = 65536;  // of a schema, expression or grammar
inline constexpr std::uint32_t kMaxLogprobs = 20;          // likeliest tokens beside each
inline constexpr std::uint32_t kDefaultMaxTokens = 128;
inline constexpr std::uint32_t kMaxChoice = 127;  // OpenAI's n is at most 128
// As max_tokens: as many as the model's context has room for.
inline constexpr std::uint32_t kToEndOfContext = 0xffffffff;

// Keys of what an answer's text can be held to, one of them at a time.
inline constexpr std::array<std::string_view, 3> kConstraintKeys{"json_schema", "regex", "gbnf"};
constexpr bool is_constraint_key(std::string_view key) {
  return std::ranges::find(kConstraintKeys, key) != kConstraintKeys.end();
}

struct SamplingParams {
  static constexpr std::string_view kName = "SamplingParams";
  float temperature = 1;
  std::uint32_t top_k = 0;
  float top_p = 1;
  float min_p = 0;
  float repetition_penalty = 1;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  std::vector<std::pair<TokenId, float>> logit_bias;
  std::vector<std::vector<TokenId>> bad_words;
  std::uint64_t seed = 0;
  std::uint32_t choice = 0;
  std::uint32_t max_tokens = kDefaultMaxTokens;
  std::uint32_t min_tokens = 0;
  std::vector<TokenId> stop_token_ids;
  bool ignore_eos = false;
  std::int32_t n_logprobs = -1;
  std::int32_t n_prompt_logprobs = -1;
  std::string json_schema;  // at most one of these three
  std::string regex;
  std::string gbnf;
  bool operator==(const SamplingParams&) const = default;

  // v(number on the wire, key, member, Limit, sentence); of one that was added, then the minor
  // version of the protocol that has it first
  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v(1, "temperature", m.temperature, from_to(0, 100), "randomness of the choice; 0 = greedy");
    v(2, "top_k", m.top_k, from_to(0, 0x7fffffff).or_off(-1),
      "only the k likeliest tokens; 0 and -1 = off");
    v(3, "top_p", m.top_p, above_to(0, 1),
      "only the likeliest tokens that together have this probability; 1 = off");
    v(4, "min_p", m.min_p, from_below(0, 1),
      "only tokens at least this likely, relative to the likeliest; 0 = off");
    v(5, "repetition_penalty", m.repetition_penalty, above_to(0, 100),
      "for tokens that prompt or answer has; 1 = off");
    v(6, "presence_penalty", m.presence_penalty, from_to(-2, 2),
      "for tokens that the answer has; 0 = off");
    v(7, "frequency_penalty", m.frequency_penalty, from_to(-2, 2),
      "for each time the answer has a token; 0 = off");
    v(8, "logit_bias", m.logit_bias, from_to(-100, 100).at_most(kMaxLogitBias),
      "token id -> what is added to its logit");
    v(9, "bad_words", m.bad_words, InternalLimit{entries(kMaxBadWordForms, kMaxBadWordTokens)},
      "token sequences that must not appear");
    v(10, "seed", m.seed, any_value().unless_given("from the request id"),
      "same seed and request, same answer, with any draft");
    v(11, "choice", m.choice, from_to(0, kMaxChoice),
      "which of several answers to one prompt with one seed; each is as reproducible as the first, "
      "0");
    v(12, "max_tokens", m.max_tokens, from_to(0, kToEndOfContext),
      "longest answer in tokens; 0, no answer, only with prompt_logprobs; 4294967295 = to the end "
      "of "
      "the context");
    v(13, "min_tokens", m.min_tokens, from_to(0, 0xffffffff),
      "end and stop tokens are masked before so many; a stop string they complete is text");
    v(14, "stop_token_ids", m.stop_token_ids, entries(kMaxStopTokens),
      "token ids that end the answer, besides the model's own");
    v(15, "ignore_eos", m.ignore_eos, any_value(), "the model's end tokens do not end the answer");
    v(16, "logprobs", m.n_logprobs, from_to(0, kMaxLogprobs).or_bool().unless_given(-1, "none"),
      "log-probability of each token, and of so many likeliest ones");
    v(17, "prompt_logprobs", m.n_prompt_logprobs,
      from_to(0, kMaxLogprobs).or_bool().unless_given(-1, "none"),
      "log-probability of each token of the prompt but the first, and of so many likeliest ones",
      2);
    v(18, "json_schema", m.json_schema, bytes(kMaxConstraintBytes),
      "JSON Schema that the answer's text must satisfy, as JSON text; at most one of json_schema, "
      "regex and gbnf",
      4);
    v(19, "regex", m.regex, bytes(kMaxConstraintBytes),
      "regular expression that the whole answer must match", 4);
    v(20, "gbnf", m.gbnf, bytes(kMaxConstraintBytes),
      "grammar in llama.cpp's GBNF that the answer must follow", 4);
  }
};

// The key of what constrains the answer's text; "": nothing does.
std::string_view constraint_key(const SamplingParams& params);

// The tokens that end an answer under these parameters: stop_token_ids, and the model's end tokens
// unless ignored. Sorted, each once. min_tokens masks exactly these.
std::vector<TokenId> ending_tokens(const SamplingParams& params, std::span<const TokenId> eos_ids);

// What holds for a request that does not say: of the model's generation_config.json.
struct SamplingDefaults {
  static constexpr std::string_view kName = "SamplingDefaults";
  float temperature = 1;
  std::uint32_t top_k = 0;
  float top_p = 1;
  float min_p = 0;
  float repetition_penalty = 1;
  bool operator==(const SamplingDefaults&) const = default;

  // v(number on the wire, key of SamplingParams, member, sentence)
  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v(1, "temperature", m.temperature, "0 = greedy");
    v(2, "top_k", m.top_k, "0 = off");
    v(3, "top_p", m.top_p, "1 = off");
    v(4, "min_p", m.min_p, "0 = off");
    v(5, "repetition_penalty", m.repetition_penalty, "1 = off");
  }
};

// Range checks that need no model. vocab_size > 0 also checks every token id. The error names
// field, value and limit.
Result<void> validate(const SamplingParams& params, std::int64_t vocab_size);

}  // namespace foretoken
