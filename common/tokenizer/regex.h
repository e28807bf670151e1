// The door of PCRE2: patterns as tokenizer files write them (Oniguruma's dialect), matched over
// valid UTF-8 with a limit on steps. Compiled code where the kernel permits it, the interpreter
// otherwise, with equal results. A Regex is immutable; each thread brings its own RegexScratch.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace foretoken {

enum class RegexJit;

struct TextRange {
  std::size_t begin;
  std::size_t end;
};

class RegexScratch {
 public:
  RegexScratch();
  ~RegexScratch();
  RegexScratch(const RegexScratch&) = delete;
  RegexScratch& operator=(const RegexScratch&) = delete;

 private:
  friend class Regex;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

class Regex {
 public:
  static Result<Regex> compile(std::string_view pattern, RegexJit jit);
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  // All matches from left to right, none overlapping; an empty one only where the previous did not
  // just end.
  Result<void> find_all(std::string_view text,
                        RegexScratch& scratch,
                        std::vector<TextRange>& matches) const;

 private:
  struct Impl;
  explicit Regex(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The patterns of published tokenizers, each compared with Oniguruma in tests.
std::span<const std::string_view> tested_patterns();
// One of those, also with a line feed or carriage return itself where those have \n or \r.
bool is_tested_pattern(std::string_view pattern);
// How many code points of a text (valid UTF-8) have no meaning in PCRE2's tables: such ones may be
// split otherwise than by a reference with newer tables.
std::size_t count_unassigned(std::string_view text);
// The split of GPT-2, which ByteLevel brings along.
std::string_view gpt2_pattern();

}  // namespace foretoken
