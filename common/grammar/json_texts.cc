#include "common/grammar/json_texts.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "common/base/utf8.h"
#include "common/grammar/character_ranges.h"
#include "common/grammar/json_numbers.h"

namespace foretoken {
namespace {

constexpr std::string_view kLowerHexDigits = "0123456789abcdef";

struct ShortEscape {
  char32_t code_point;
  char letter;
};
constexpr ShortEscape kShortEscapes[] = {{'"', '"'},  {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'},
                                         {'\n', 'n'}, {'\r', 'r'},  {'\t', 't'}};

constexpr CharacterRange kRawRanges[] = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, kLastCharacter}};

bool holds(std::span<const CharacterRange> ranges, char32_t code_point) {
  return std::any_of(ranges.begin(), ranges.end(), [&](const CharacterRange& range) {
    return range.first <= code_point && code_point <= range.last;
  });
}

std::vector<CharacterRange> raw_part(std::span<const CharacterRange> ranges) {
  std::vector<CharacterRange> raw;
  for (const CharacterRange& range : ranges) {
    for (const CharacterRange& allowed : kRawRanges) {
      const CharacterRange both{std::max(range.first, allowed.first),
                                std::min(range.last, allowed.last)};
      if (both.first <= both.last) raw.push_back(both);
    }
  }
  return raw;
}

const ShortEscape* short_escape_of(char32_t code_point) {
  for (const ShortEscape& escape : kShortEscapes)
    if (escape.code_point == code_point) return &escape;
  return nullptr;
}

ByteSet hex_digits() {
  return bytes_between('0', '9') | bytes_between('a', 'f') | bytes_between('A', 'F');
}

// \uXXXX of a code point that is no surrogate.
ExpressionId hex_escape(Expressions& expressions) {
  const auto hex = expressions.byte(hex_digits());
  const auto not_d = expressions.byte(hex_digits() & ~ByteSet().set('d').set('D'));
  const auto d = expressions.byte(ByteSet().set('d').set('D'));
  const auto below_surrogates = expressions.byte(bytes_between('0', '7'));
  const auto first_two = expressions.any_of(
      {expressions.sequence({not_d, hex}), expressions.sequence({d, below_surrogates})});
  return expressions.sequence({expressions.literal("u"), first_two, hex, hex});
}

ExpressionId one_character(Expressions& expressions) {
  ByteSet letters;
  for (const char letter : std::string_view("\"\\/bfnrt"))
    letters.set(static_cast<unsigned char>(letter));
  return expressions.any_of(
      {expressions.character(kRawRanges),
       expressions.sequence(
           {expressions.literal("\\"),
            expressions.any_of({expressions.byte(letters), hex_escape(expressions)})})});
}

ExpressionId list_of(ExpressionId item, std::string_view brackets, Expressions& expressions) {
  const auto more = expressions.sequence({expressions.literal(","), item});
  const auto items =
      expressions.sequence({item, expressions.repeat(more, 0, Expressions::kUnbounded)});
  return expressions.sequence({expressions.literal(brackets.substr(0, 1)),
                               expressions.optional(items),
                               expressions.literal(brackets.substr(1))});
}

// The code points up to `last` that are no key of the map.
template <class Map>
std::vector<CharacterRange> ranges_without(const Map& left_out, char32_t last) {
  std::vector<CharacterRange> ranges;
  char32_t from = 0;
  for (const auto& [code_point, unused] : left_out) {
    if (from < code_point) ranges.push_back({from, code_point - 1});
    from = code_point + 1;
  }
  if (from <= last) ranges.push_back({from, last});
  return ranges;
}

// Nodes that a copy of the expression would be, counted up to `limit`.
std::size_t size_of(ExpressionId id, std::size_t limit, const Expressions& expressions) {
  const Expression& whole = expressions[id];
  std::size_t size = 1;
  for (const ExpressionId part : whole.parts) {
    if (size >= limit) break;
    size += size_of(part, limit - size, expressions);
  }
  if (whole.kind != ExpressionKind::kRepeat) return size;
  const std::size_t n = whole.max == Expressions::kUnbounded ? whole.min + 1u : whole.max;
  return n > 0 && size > limit / n ? limit : size * n;
}

}  // namespace

ByteSet bytes_between(char first, char last) {
  ByteSet bytes;
  for (char at = first; at <= last; ++at) bytes.set(static_cast<unsigned char>(at));
  return bytes;
}

bool is_nothing(ExpressionId id, const Expressions& expressions) {
  const Expression& expression = expressions[id];
  return expression.kind == ExpressionKind::kAnyOf && expression.parts.empty();
}

ExpressionId text_sequence(std::vector<ExpressionId> parts, Expressions& expressions) {
  for (const ExpressionId part : parts)
    if (is_nothing(part, expressions)) return expressions.nothing();
  return expressions.sequence(std::move(parts));
}

ExpressionId any_text_of(std::vector<ExpressionId> ways, Expressions& expressions) {
  std::erase_if(ways, [&](ExpressionId way) { return is_nothing(way, expressions); });
  if (ways.empty()) return expressions.nothing();
  return ways.size() == 1 ? ways.front() : expressions.any_of(std::move(ways));
}

ExpressionId write_json_character(Expressions& expressions,
                                  std::span<const CharacterRange> ranges) {
  std::vector<ExpressionId> ways;
  if (const auto raw = raw_part(ranges); !raw.empty()) ways.push_back(expressions.character(raw));
  ByteSet letters;
  for (const ShortEscape& escape : kShortEscapes)
    if (holds(ranges, escape.code_point)) letters.set(static_cast<unsigned char>(escape.letter));
  if (letters.any()) {
    ways.push_back(expressions.sequence({expressions.literal("\\"), expressions.byte(letters)}));
  }
  ByteSet low[2];  // the last digit, by the one before it
  for (char32_t control = 0; control < 0x20; ++control) {
    if (holds(ranges, control) && short_escape_of(control) == nullptr)
      low[control / 16].set(static_cast<unsigned char>(kLowerHexDigits[control % 16]));
  }
  for (const int tens : {0, 1}) {
    if (low[tens].none()) continue;
    ways.push_back(expressions.sequence(
        {expressions.literal(tens == 0 ? "\\u000" : "\\u001"), expressions.byte(low[tens])}));
  }
  return any_text_of(std::move(ways), expressions);
}

ExpressionId JsonTexts::string_character() {
  if (!character_) {
    character_ = expressions_.new_rule();
    expressions_.define(*character_, one_character(expressions_));
  }
  return expressions_.call(*character_);
}

ExpressionId JsonTexts::string(std::uint32_t min_length, std::uint32_t max_length) {
  if (min_length > max_length) return expressions_.nothing();
  const auto quote = expressions_.literal("\"");
  if (min_length > 1 || max_length != Expressions::kUnbounded) {
    return expressions_.sequence(
        {quote, expressions_.repeat(string_character(), min_length, max_length), quote});
  }
  if (min_length == 1) {
    const auto one = one_character(expressions_);
    return expressions_.sequence({quote, expressions_.repeat(one, 1, max_length), quote});
  }
  if (!any_string_) {
    any_string_ = expressions_.new_rule();
    const auto all = expressions_.repeat(one_character(expressions_), 0, Expressions::kUnbounded);
    expressions_.define(*any_string_, expressions_.sequence({quote, all, quote}));
  }
  return expressions_.call(*any_string_);
}

ExpressionId JsonTexts::any_value() {
  if (any_value_) return expressions_.call(*any_value_);
  any_value_ = expressions_.new_rule();
  const auto value = expressions_.call(*any_value_);
  const auto text = string(0, Expressions::kUnbounded);
  const auto member = expressions_.sequence({text, expressions_.literal(":"), value});
  expressions_.define(
      *any_value_, expressions_.any_of(
                       {expressions_.literal("null"), expressions_.literal("true"),
                        expressions_.literal("false"), numbers_within({}, expressions_), text,
                        list_of(value, "[]", expressions_), list_of(member, "{}", expressions_)}));
  return value;
}

struct JsonTexts::KeyTrie {
  bool is_key = false;
  std::map<char32_t, std::unique_ptr<KeyTrie>> next;
};

ExpressionId JsonTexts::key_end() {
  if (!key_end_) {
    key_end_ = expressions_.new_rule();
    const CharacterRange all{0, kLastCharacter};
    const auto one = write_json_character(expressions_, {&all, 1});
    expressions_.define(*key_end_,
                        expressions_.sequence({expressions_.repeat(one, 0, Expressions::kUnbounded),
                                               expressions_.literal("\"")}));
  }
  return expressions_.call(*key_end_);
}

// Most keys are ASCII, so that all else is one rule and not a copy at each letter.
ExpressionId JsonTexts::beyond_ascii_key_end() {
  if (!beyond_ascii_key_end_) {
    beyond_ascii_key_end_ = expressions_.new_rule();
    const CharacterRange beyond{0x80, kLastCharacter};
    expressions_.define(
        *beyond_ascii_key_end_,
        expressions_.sequence({write_json_character(expressions_, {&beyond, 1}), key_end()}));
  }
  return expressions_.call(*beyond_ascii_key_end_);
}

ExpressionId JsonTexts::other_than(const KeyTrie& node) {
  std::vector<ExpressionId> ways;
  if (!node.is_key) ways.push_back(expressions_.literal("\""));
  for (const auto& [code_point, next] : node.next) {
    const CharacterRange one{code_point, code_point};
    ways.push_back(text_sequence({write_json_character(expressions_, {&one, 1}), other_than(*next)},
                                 expressions_));
  }
  const bool is_ascii = node.next.empty() || node.next.rbegin()->first < 0x80;
  if (is_ascii) ways.push_back(beyond_ascii_key_end());
  const auto others = ranges_without(node.next, is_ascii ? 0x7F : kLastCharacter);
  ways.push_back(
      text_sequence({write_json_character(expressions_, others), key_end()}, expressions_));
  return any_text_of(std::move(ways), expressions_);
}

ExpressionId JsonTexts::other_key(const std::set<std::string>& keys) {
  KeyTrie root;
  for (const std::string& key : keys) {
    KeyTrie* node = &root;
    for (std::size_t at = 0; at < key.size();) {
      const utf8::CodePoint one = utf8::code_point_at(key, at);
      at += one.length;
      auto& next = node->next[one.value];
      if (!next) next = std::make_unique<KeyTrie>();
      node = next.get();
    }
    node->is_key = true;
  }
  return expressions_.sequence({expressions_.literal("\""), other_than(root)});
}

ExpressionId JsonTexts::shared(ExpressionId part) {
  constexpr std::size_t kSmall = 48;
  if (size_of(part, kSmall, expressions_) < kSmall) return part;
  const RuleId rule = expressions_.new_rule();
  expressions_.define(rule, part);
  return expressions_.call(rule);
}

}  // namespace foretoken
