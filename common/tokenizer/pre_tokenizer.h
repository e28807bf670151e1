// Cuts normalized text into the pieces that BPE never joins. Works on one buffer and a list of
// ranges; only steps that rewrite text make a new buffer. Immutable after build().
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/tokenizer/regex.h"
#include "common/tokenizer/spec.h"

namespace foretoken {

struct Pieces {
  struct Range {
    std::size_t begin;
    std::size_t end;
    bool starts_text;  // begins where the whole text begins
  };
  std::string buffer;
  std::vector<Range> ranges;  // none empty

  std::string_view text(const Range& range) const {
    return std::string_view(buffer).substr(range.begin, range.end - range.begin);
  }
};

class PreTokenizer {
 public:
  static Result<PreTokenizer> build(std::vector<SplitterStep> steps, RegexJit jit);

  // `pieces` comes with one range for the text and leaves with the final ones.
  Result<void> apply(Pieces& pieces, RegexScratch& scratch) const;

 private:
  struct Step {
    SplitterStep spec;
    std::optional<Regex> regex;
  };
  std::vector<Step> steps_;
};

// The 256 characters GPT-2 writes bytes with.
std::string_view byte_to_character(unsigned char byte);  // UTF-8, one or two bytes
std::optional<unsigned char> character_to_byte(char32_t code_point);

}  // namespace foretoken
