// The prompts of the runs of bench: those of a file, each run the same; or prompts that are made
// up, which within one run and from run to run share no beginning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "services/cli/options.h"
#include "services/cli/prompts.h"

namespace foretoken::cli {

inline constexpr std::string_view kRandomPrompts = "random";  // of --dataset

class BenchPrompts {
 public:
  using Tokenize = std::function<Result<std::vector<TokenId>>(const std::string& text)>;

  // `tokenize`: of random prompts. The options outlive it.
  BenchPrompts(const BenchLoadOptions& bench, std::uint64_t seed, Tokenize tokenize)
      : bench_(bench), seed_(seed), tokenize_(std::move(tokenize)) {}

  // Each run has others, one more than it has requests: that one warms a system up.
  bool are_made_up() const { return bench_.dataset == kRandomPrompts || bench_.unique_prompts; }
  // Throws FatalError naming the file and what is wrong.
  Result<std::vector<DemoPrompt>> of_run(std::size_t run) const;

 private:
  Result<std::vector<TokenId>> random_tokens(const std::vector<DemoPrompt>& words,
                                             std::uint64_t seed) const;

  const BenchLoadOptions& bench_;
  std::uint64_t seed_;
  Tokenize tokenize_;
};

}  // namespace foretoken::cli
