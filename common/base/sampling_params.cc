#include "common/base/sampling_params.h"

#include <algorithm>
#include <optional>
#include <string>
#include <type_traits>

namespace foretoken {
namespace {

Error out_of_range(const char* key, const std::string& value, const std::string& limit) {
  return {ErrorCode::kInvalidValue, std::string(key) + " is " + value + "; it must be " + limit,
          key};
}

// Checks one field against its limit; by type, as the listing has them.
struct Checker {
  const char* key;
  const Limit& limit;
  std::int64_t vocab_size;

  template <class T>
  requires std::is_arithmetic_v<T> std::optional<Error> check(T value)
  const {
    const auto number = static_cast<double>(value);
    if (limit.contains(number) || limit.is_none(number)) return {};
    return out_of_range(key, number_text(number), range_text(limit));
  }
  std::optional<Error> check(const std::string& text) const {
    if (text.size() <= limit.most_each) return {};
    return out_of_range(key, std::to_string(text.size()) + " bytes",
                        "at most " + std::to_string(limit.most_each) + " bytes");
  }
  template <class T>
  std::optional<Error> check(const std::vector<T>& list) const {
    if (list.size() > limit.most)
      return out_of_range(key, std::to_string(list.size()) + " entries",
                          "at most " + std::to_string(limit.most) + " entries");
    for (const T& entry : list)
      if (auto error = check_entry(entry)) return error;
    return {};
  }

 private:
  std::optional<Error> check_entry(TokenId id) const { return check_token(id); }
  std::optional<Error> check_entry(const std::pair<TokenId, float>& bias) const {
    if (auto error = check_token(bias.first)) return error;
    return check(bias.second);
  }
  std::optional<Error> check_entry(const std::vector<TokenId>& word) const {
    if (word.empty() || word.size() > limit.most_each)
      return out_of_range(key, "a word of " + std::to_string(word.size()) + " tokens",
                          "1 to " + std::to_string(limit.most_each) + " tokens long");
    for (const TokenId id : word)
      if (auto error = check_token(id)) return error;
    return {};
  }
  std::optional<Error> check_token(TokenId id) const {
    if (id >= 0 && (vocab_size <= 0 || id < vocab_size)) return {};
    return Error{ErrorCode::kInvalidValue,
                 std::string(key) + " has token id " + std::to_string(id) +
                     "; the vocabulary has " + std::to_string(vocab_size) + " tokens",
                 key};
  }
};

// Calls `use` with the key of each that is given.
template <class Use>
void each_constraint(const SamplingParams& params, Use&& use) {
  SamplingParams::fields(
      params, [&](int, const char* key, const auto& value, const Limit&, const char*, int = 0) {
        if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::string>)
          if (is_constraint_key(key) && !value.empty()) use(key);
      });
}

// A text can be held to one of them: the error names the second.
std::optional<Error> check_constraints(const SamplingParams& params) {
  const std::string first(constraint_key(params));
  std::optional<Error> error;
  each_constraint(params, [&](const char* key) {
    if (key != first && !error)
      error = Error{ErrorCode::kInvalidValue,
                    first + " and " + key +
                        " are both given; an answer is held to one of json_schema, regex and gbnf",
                    key};
  });
  return error;
}

}  // namespace

std::string_view constraint_key(const SamplingParams& params) {
  std::string_view first;
  each_constraint(params, [&](const char* key) {
    if (first.empty()) first = key;
  });
  return first;
}

std::vector<TokenId> ending_tokens(const SamplingParams& params, std::span<const TokenId> eos_ids) {
  std::vector<TokenId> endings = params.stop_token_ids;
  if (!params.ignore_eos) endings.insert(endings.end(), eos_ids.begin(), eos_ids.end());
  std::sort(endings.begin(), endings.end());
  endings.erase(std::unique(endings.begin(), endings.end()), endings.end());
  return endings;
}

Result<void> validate(const SamplingParams& params, std::int64_t vocab_size) {
  std::optional<Error> error;
  SamplingParams::fields(params, [&](int, const char* key, const auto& value, const Limit& limit,
                                     const char*, int = 0) {
    if (!error) error = Checker{key, limit, vocab_size}.check(value);
  });
  if (!error) error = check_constraints(params);
  if (error) return *error;
  if (params.max_tokens == 0 && params.n_prompt_logprobs < 0)
    return out_of_range("max_tokens", "0", "at least 1 without prompt_logprobs");
  if (params.min_tokens > params.max_tokens)
    return out_of_range("min_tokens", std::to_string(params.min_tokens), "at most max_tokens");
  return {};
}

}  // namespace foretoken
