#include "common/grammar/gbnf.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/utf8.h"
#include "common/grammar/character_ranges.h"
#include "common/grammar/text_cursor.h"

namespace foretoken {
namespace {

constexpr std::uint32_t kMaxGbnfRepeat = 2'000;
constexpr int kMaxGbnfGroups = 200;  // within one another
constexpr std::string_view kNameCharacters =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

enum class Newlines { kStay, kSkip };

class GbnfReader {
 public:
  GbnfReader(std::string_view text, Expressions& expressions)
      : text_(text), cursor_(text), expressions_(expressions) {}

  Result<ExpressionId> read() {
    skip_space(Newlines::kSkip);
    while (!cursor_.at_end()) read_rule();
    if (cursor_.failed()) return error_at(cursor_.failure().place, cursor_.failure().message);
    const auto root = rules_.find("root");
    if (root == rules_.end() || !expressions_.is_defined(root->second.id))
      return Error{ErrorCode::kInvalidValue, "there is no rule 'root', where the text begins"};
    for (const auto& [name, rule] : rules_)
      if (!expressions_.is_defined(rule.id))
        return error_at(rule.first_use, "the rule '" + std::string(name) + "' is not defined");
    return expressions_.call(root->second.id);
  }

 private:
  struct NamedRule {
    RuleId id{};
    std::size_t first_use = 0;
  };

  Error error_at(std::size_t place, const std::string& message) const {
    const auto line = 1 + std::ranges::count(text_.substr(0, place), '\n');
    return {ErrorCode::kInvalidValue, "line " + std::to_string(line) + ": " + message};
  }

  void skip_space(Newlines newlines) {
    for (;;) {
      cursor_.take_while(newlines == Newlines::kSkip ? " \t\r\n" : " \t");
      if (!cursor_.next_is("#")) return;
      cursor_.skip(std::min(cursor_.rest().find_first_of("\r\n"), cursor_.rest().size()));
    }
  }

  const NamedRule& rule_named(std::string_view name, std::size_t place) {
    const auto [known, is_new] = rules_.try_emplace(name);
    if (is_new) known->second = {expressions_.new_rule(std::string(name)), place};
    return known->second;
  }

  void read_rule() {
    const std::size_t place = cursor_.at();
    const std::string_view name = cursor_.take_while(kNameCharacters);
    skip_space(Newlines::kStay);
    if (name.empty() || !cursor_.take("::="))
      return cursor_.fail_at(place, "a rule must begin with its name and '::='");
    const RuleId rule = rule_named(name, place).id;
    if (expressions_.is_defined(rule))
      return cursor_.fail_at(place, "the rule '" + std::string(name) + "' is defined twice");
    skip_space(Newlines::kSkip);
    const ExpressionId body = alternatives(Newlines::kStay);
    if (!cursor_.at_end() && !cursor_.next_is_one_of("\r\n"))
      cursor_.fail("a literal, a class, a group, a name or the end of the rule was expected");
    expressions_.define(rule, body);
    skip_space(Newlines::kSkip);
  }

  ExpressionId alternatives(Newlines newlines) {
    std::vector<ExpressionId> found{sequence(newlines)};
    while (cursor_.take("|")) {
      skip_space(Newlines::kSkip);
      found.push_back(sequence(newlines));
    }
    return expressions_.any_of(std::move(found));
  }

  ExpressionId sequence(Newlines newlines) {
    std::vector<ExpressionId> parts;
    for (std::optional<ExpressionId> part = symbol(); part; part = symbol()) {
      skip_space(newlines);
      while (cursor_.next_is_one_of("*+?{")) {
        part = repeated(*part);
        skip_space(newlines);
      }
      parts.push_back(*part);
    }
    return expressions_.sequence(std::move(parts));
  }

  // Nothing, where none begins.
  std::optional<ExpressionId> symbol() {
    if (cursor_.take("\"")) return literal();
    if (cursor_.take("[")) return character_class();
    if (cursor_.take("(")) return group();
    if (cursor_.take(".")) return expressions_.character({{kAllCharacters}});
    if (cursor_.next_is("<") || cursor_.next_is("!")) {
      cursor_.fail("tokens (<...>) are not supported; write their text");
      return std::nullopt;
    }
    const std::size_t place = cursor_.at();
    const std::string_view name = cursor_.take_while(kNameCharacters);
    if (name.empty()) return std::nullopt;
    return expressions_.call(rule_named(name, place).id);
  }

  ExpressionId literal() {
    const std::size_t quote = cursor_.at() - 1;
    std::string bytes;
    while (!cursor_.at_end() && !cursor_.next_is("\"")) utf8::append(bytes, character());
    if (!cursor_.take("\"")) cursor_.fail_at(quote, "a literal has no end");
    return expressions_.literal(bytes);
  }

  ExpressionId character_class() {
    const std::size_t bracket = cursor_.at() - 1;
    const bool is_negated = cursor_.take("^");
    if (cursor_.next_is("]")) cursor_.fail_at(bracket, "a class is empty");
    std::vector<CharacterRange> ranges;
    while (!cursor_.at_end() && !cursor_.next_is("]")) {
      const std::size_t place = cursor_.at();
      CharacterRange range;
      range.first = range.last = character();
      if (cursor_.next_is("-") && !cursor_.next_is("-]") && cursor_.rest().size() > 1) {
        cursor_.skip(1);
        range.last = character();
      }
      if (range.first > range.last) cursor_.fail_at(place, "a range must not go backwards");
      ranges.push_back(range);
    }
    if (!cursor_.take("]")) cursor_.fail_at(bracket, "a class has no end");
    return expressions_.character(is_negated ? other_characters(ranges) : sorted_ranges(ranges));
  }

  ExpressionId group() {
    const std::size_t parenthesis = cursor_.at() - 1;
    if (++n_open_ > kMaxGbnfGroups)
      cursor_.fail_at(parenthesis, "groups are nested deeper than " +
                                       std::to_string(kMaxGbnfGroups) + " levels");
    skip_space(Newlines::kSkip);
    const ExpressionId body = alternatives(Newlines::kSkip);
    if (!cursor_.take(")")) cursor_.fail_at(parenthesis, "a group has no end");
    --n_open_;
    return body;
  }

  // One character of a literal or a class, not at the end.
  char32_t character() {
    const std::size_t place = cursor_.at();
    const char32_t written = cursor_.take_character();
    if (written != '\\') return written;
    std::optional<char32_t> character = escaped();
    if (!character)
      cursor_.fail_at(place,
                      "an escape must be \\n, \\r, \\t, \\\\, \\\", \\[, \\], \\-, \\^, "
                      "\\xHH, \\uHHHH or \\UHHHHHHHH");
    else if (is_surrogate(*character) || *character > kLastCharacter)
      cursor_.fail_at(place, "an escape names no character");
    return cursor_.failed() ? 0 : *character;
  }

  std::optional<char32_t> escaped() {
    if (cursor_.at_end()) return std::nullopt;
    switch (const char32_t name = cursor_.take_character()) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'x':
        return cursor_.take_hex(2);
      case 'u':
        return cursor_.take_hex(4);
      case 'U':
        return cursor_.take_hex(8);
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
      case '^':
        return name;
      default:
        return std::nullopt;
    }
  }

  ExpressionId repeated(ExpressionId part) {
    if (cursor_.take("*")) return expressions_.repeat(part, 0, Expressions::kUnbounded);
    if (cursor_.take("+")) return expressions_.repeat(part, 1, Expressions::kUnbounded);
    if (cursor_.take("?")) return expressions_.repeat(part, 0, 1);
    const std::size_t brace = cursor_.at();
    cursor_.skip(1);
    const auto min = braces_number();
    auto max = min;
    if (cursor_.take(",")) {
      skip_space(Newlines::kStay);
      max = braces_number();
      if (!max) max = Expressions::kUnbounded;
    }
    if (!min || !cursor_.take("}"))
      cursor_.fail_at(brace, "a repetition must be {m}, {m,} or {m,n}");
    else if (*min > kMaxGbnfRepeat || (*max != Expressions::kUnbounded && *max > kMaxGbnfRepeat))
      cursor_.fail_at(brace,
                      "a repetition is beyond the limit of " + std::to_string(kMaxGbnfRepeat));
    else if (*min > *max)
      cursor_.fail_at(brace, "a repetition has more at least than at most");
    return cursor_.failed() ? part : expressions_.repeat(part, *min, *max);
  }

  std::optional<std::uint32_t> braces_number() {
    skip_space(Newlines::kStay);
    const auto number = cursor_.take_number(kMaxGbnfRepeat);
    skip_space(Newlines::kStay);
    return number;
  }

  std::string_view text_;
  TextCursor cursor_;
  Expressions& expressions_;
  int n_open_ = 0;
  std::map<std::string_view, NamedRule> rules_;
};

}  // namespace

Result<ExpressionId> read_gbnf(std::string_view text, Expressions& expressions) {
  if (const auto invalid = utf8::first_invalid(text))
    return Error{ErrorCode::kInvalidValue,
                 "the grammar is not valid UTF-8 at byte " + std::to_string(*invalid)};
  return GbnfReader(text, expressions).read();
}

}  // namespace foretoken
