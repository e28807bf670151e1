#include "services/cli/bench_prompts.h"

#include <utility>

namespace foretoken::cli {
namespace {

// Seeds that lie near each other have no prompt in common.
constexpr std::uint64_t kPromptsOfASeed = 1'000'003;

}  // namespace

Result<std::vector<DemoPrompt>> BenchPrompts::of_run(std::size_t run) const {
  const bool is_random = bench_.dataset == kRandomPrompts;
  auto given = load_prompts(is_random ? "" : bench_.dataset);
  if (!are_made_up()) return given;
  const auto n = static_cast<std::size_t>(bench_.n_prompts) + 1;
  std::vector<DemoPrompt> prompts;
  for (std::size_t i = run * n; i < (run + 1) * n; ++i) {
    if (!is_random) {
      prompts.push_back(numbered(given[i % given.size()], seed_, i));
      continue;
    }
    auto ids = random_tokens(given, seed_ * kPromptsOfASeed + i);
    if (!ids.ok()) return ids.error();
    prompts.push_back(
        {.kind = std::string(kRandomPrompts), .messages = {}, .token_ids = std::move(*ids)});
  }
  return prompts;
}

// A word has a token or more, but for words that a tokenizer makes one of.
Result<std::vector<TokenId>> BenchPrompts::random_tokens(const std::vector<DemoPrompt>& words,
                                                         std::uint64_t seed) const {
  const std::size_t n_tokens = bench_.input_len.value_or(kUsualInputLen);
  for (const std::size_t factor : {1, 4}) {
    auto ids = tokenize_(random_words(words, factor * n_tokens, seed));
    if (!ids.ok()) return ids.error();
    if (ids->size() < n_tokens) continue;
    ids->resize(n_tokens);
    return ids;
  }
  return Error{ErrorCode::kInvalidValue,
               "the tokenizer makes fewer than " + std::to_string(n_tokens) + " tokens of " +
                   std::to_string(4 * n_tokens) + " words",
               "--input-len"};
}

}  // namespace foretoken::cli
