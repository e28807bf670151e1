// The lexical forms of compact JSON as expressions: strings, keys, any value. Forms that are long
// are rules, written once. Knows nothing of schemas.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/grammar/expressions.h"

namespace foretoken {

ByteSet bytes_between(char first, char last);  // both included, ASCII

// As Expressions has them; nothing() if a part is, or every alternative.
bool is_nothing(ExpressionId id, const Expressions& expressions);
ExpressionId text_sequence(std::vector<ExpressionId> parts, Expressions& expressions);
ExpressionId any_text_of(std::vector<ExpressionId> ways, Expressions& expressions);

// One code point of these in its short form within a string: as it is, or with its escape where
// JSON demands one. A CharacterWriter for read_regex.
ExpressionId write_json_character(Expressions& expressions, std::span<const CharacterRange> ranges);

class JsonTexts {
 public:
  static constexpr std::size_t kMaxKeyBytes = 256;

  explicit JsonTexts(Expressions& expressions) : expressions_(expressions) {}

  // A string of so many code points, quotes included; every escape but those of surrogates.
  ExpressionId string(std::uint32_t min_length, std::uint32_t max_length);
  ExpressionId any_value();
  // A key that is none of these, quotes included; its code points in their short forms, so that no
  // key has two. They have at most kMaxKeyBytes.
  ExpressionId other_key(const std::set<std::string>& keys);
  // `part` for use in several places: as it is if it is small, else a rule.
  ExpressionId shared(ExpressionId part);

 private:
  struct KeyTrie;

  ExpressionId string_character();
  ExpressionId key_end();  // any rest of a key, with the quote
  ExpressionId beyond_ascii_key_end();
  ExpressionId other_than(const KeyTrie& node);

  Expressions& expressions_;
  std::optional<RuleId> character_;
  std::optional<RuleId> any_string_;
  std::optional<RuleId> any_value_;
  std::optional<RuleId> key_end_;
  std::optional<RuleId> beyond_ascii_key_end_;
};

}  // namespace foretoken
