#include "bench/schedule/timed_prompts.h"

#include <cmath>
#include <random>
#include <span>
#include <utility>

#include "bench/schedule/timed_text.h"

namespace foretoken::bench {
namespace {

constexpr std::size_t kPromptTokens = 8;

std::vector<TokenId> random_prompt(std::mt19937_64& random) {
  std::vector<TokenId> prompt(kPromptTokens);
  for (TokenId& token : prompt) token = static_cast<TokenId>(random() % kTimedVocabulary);
  return prompt;
}

// Of the first n texts together.
std::size_t n_right_wanted(std::size_t n, const TimedTexts& wanted) {
  return static_cast<std::size_t>(
      std::llround(wanted.acceptance * static_cast<double>(n * (wanted.n_tokens - 1))));
}

}  // namespace

std::size_t n_right_guesses(std::vector<TokenId> prompt, const TimedTexts& wanted) {
  std::vector<TokenId>& text = prompt;
  std::size_t n_right = 0;
  for (std::size_t i = 0; i < wanted.n_tokens; ++i) {
    const auto last = std::span<const TokenId>(text).last(kTimedContext);
    if (i > 0 && likeliest_after(last, wanted.acceptance).is_right) ++n_right;
    text.push_back(likeliest_after(last, 1).best);
  }
  return n_right;
}

std::vector<std::vector<TokenId>> timed_prompts(const TimedTexts& wanted) {
  std::mt19937_64 random(17);
  std::vector<std::vector<TokenId>> prompts;
  while (prompts.size() < wanted.n_texts) {
    const std::size_t n = prompts.size();
    const std::size_t n_right = n_right_wanted(n + 1, wanted) - n_right_wanted(n, wanted);
    std::vector<TokenId> prompt = random_prompt(random);
    if (n_right_guesses(prompt, wanted) == n_right) prompts.push_back(std::move(prompt));
  }
  return prompts;
}

}  // namespace foretoken::bench
