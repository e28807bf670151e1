// Rewrites text before it is split: Unicode forms, case, stripping, replacement. Immutable after
// build().
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/tokenizer/regex.h"
#include "common/tokenizer/spec.h"

namespace foretoken {

class Normalizer {
 public:
  static Result<Normalizer> build(std::vector<NormalizerStep> steps, RegexJit jit);

  bool empty() const { return steps_.empty(); }
  // Refused: a text that takes a pattern over its limit, or that grows past limits.h.
  Result<std::string> apply(std::string_view text, RegexScratch& scratch) const;

 private:
  struct Step {
    NormalizerStep spec;
    std::optional<Regex> regex;
  };
  static Result<std::string> apply_step(const Step& step, std::string text, RegexScratch& scratch);
  std::vector<Step> steps_;
};

}  // namespace foretoken
