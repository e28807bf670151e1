#include "common/grammar/regex.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/utf8.h"
#include "common/grammar/character_ranges.h"
#include "common/grammar/regex_characters.h"
#include "common/grammar/text_cursor.h"

namespace foretoken {
namespace {

constexpr std::uint32_t kMaxRegexRepeat = 1'000;
constexpr int kMaxRegexGroups = 200;  // within one another

struct RepeatLimits {
  std::uint32_t min = 0;
  std::uint32_t max = 0;
};

class RegexReader {
 public:
  RegexReader(std::string_view pattern,
              RegexAnchors anchors,
              const CharacterWriter& write,
              Expressions& expressions)
      : cursor_(pattern),
        anchors_(anchors),
        sets_(anchors == RegexAnchors::kSearch ? RegexSets::kEcmaScript : RegexSets::kAscii),
        write_(write),
        expressions_(expressions) {}

  Result<ExpressionId> read() {
    std::vector<ExpressionId> alternatives;
    do {
      alternatives.push_back(anchored_alternative());
    } while (cursor_.take("|"));
    if (!cursor_.at_end()) cursor_.fail("')' closes no group");
    if (cursor_.failed())
      return Error{ErrorCode::kInvalidValue, "at byte " + std::to_string(cursor_.failure().place) +
                                                 ": " + cursor_.failure().message};
    return expressions_.any_of(std::move(alternatives));
  }

 private:
  // Of the whole pattern, where ^ and $ may stand at its ends.
  ExpressionId anchored_alternative() {
    std::vector<ExpressionId> parts;
    if (!cursor_.take("^")) append_any_text(parts);
    parts.push_back(alternative());
    const bool is_anchored = cursor_.take("$");
    if (is_anchored && !cursor_.at_end() && !cursor_.next_is("|"))
      cursor_.fail("'$' is supported only at the end of the pattern or before its '|'");
    if (!is_anchored) append_any_text(parts);
    return expressions_.sequence(std::move(parts));
  }

  void append_any_text(std::vector<ExpressionId>& parts) {
    if (anchors_ == RegexAnchors::kWhole) return;
    parts.push_back(expressions_.repeat(written({kAllCharacters}), 0, Expressions::kUnbounded));
  }

  // Up to what ends it: | ) $ or the end.
  ExpressionId alternative() {
    std::vector<ExpressionId> parts;
    while (!cursor_.at_end() && !cursor_.next_is_one_of("|)$")) parts.push_back(repeated());
    return expressions_.sequence(std::move(parts));
  }

  ExpressionId repeated() {
    if (cursor_.next_is_one_of("*+?") || starts_braces()) {
      cursor_.fail("there is nothing to repeat");
      return expressions_.empty();
    }
    const ExpressionId part = atom();
    const auto limits = quantifier();
    if (!limits) return part;
    if (cursor_.next_is("+")) cursor_.fail("possessive quantifiers are not supported");
    cursor_.take("?");  // whether more or less is preferred does not change what is allowed
    if (cursor_.next_is_one_of("*+?") || starts_braces())
      cursor_.fail("a quantifier must not follow another; put the first in a group");
    return expressions_.repeat(part, limits->min, limits->max);
  }

  ExpressionId atom() {
    if (cursor_.take("(")) return group();
    if (cursor_.take("[")) return written(read_regex_class(cursor_, sets_));
    if (cursor_.take(".")) return written(regex_dot(sets_));
    if (cursor_.take("\\"))
      return written(read_regex_escape(cursor_, RegexPlace::kOutsideClass, sets_).ranges);
    if (cursor_.next_is("^"))
      cursor_.fail("'^' is supported only at the beginning of the pattern or after its '|'");
    if (cursor_.at_end()) return expressions_.empty();
    const char32_t character = cursor_.take_character();
    return written({{character, character}});
  }

  ExpressionId group() {
    const std::size_t parenthesis = cursor_.at() - 1;
    if (cursor_.take("?")) read_group_kind(parenthesis);
    if (++n_open_ > kMaxRegexGroups)
      cursor_.fail_at(parenthesis, "groups are nested deeper than " +
                                       std::to_string(kMaxRegexGroups) + " levels");
    std::vector<ExpressionId> alternatives;
    do {
      alternatives.push_back(alternative());
    } while (cursor_.take("|"));
    if (cursor_.next_is("$"))
      cursor_.fail("'$' is supported only at the end of the pattern or before its '|'");
    if (!cursor_.take(")")) cursor_.fail_at(parenthesis, "a group has no end");
    --n_open_;
    return expressions_.any_of(std::move(alternatives));
  }

  // (?:...) and the two ways to name a group; all other kinds are refused. `(?` is taken.
  void read_group_kind(std::size_t parenthesis) {
    if (cursor_.take(":")) return;
    if (cursor_.next_is_one_of("=!") || cursor_.next_is("<=") || cursor_.next_is("<!"))
      return cursor_.fail_at(parenthesis, "look-around is not supported");
    if (cursor_.next_is("P=") || cursor_.next_is("P>"))
      return cursor_.fail_at(parenthesis, "back-references are not supported");
    if (cursor_.take("P<") || cursor_.take("<")) {
      const std::string_view name =
          cursor_.take_while("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_$");
      if (name.empty() || !cursor_.take(">"))
        cursor_.fail_at(parenthesis, "the name of a group needs letters and '>'");
      return;
    }
    cursor_.fail_at(parenthesis,
                    "groups that begin with '(?' are supported as (?:...), "
                    "(?<name>...) and (?P<name>...); flags and others are not");
  }

  std::optional<RepeatLimits> quantifier() {
    if (cursor_.take("*")) return RepeatLimits{0, Expressions::kUnbounded};
    if (cursor_.take("+")) return RepeatLimits{1, Expressions::kUnbounded};
    if (cursor_.take("?")) return RepeatLimits{0, 1};
    if (!starts_braces()) return std::nullopt;
    return braces();
  }

  // Whether {m}, {m,} or {m,n} comes, or {,n}, which has two meanings; all else is text.
  bool starts_braces() const {
    constexpr std::size_t kLongest = 64;
    TextCursor ahead(cursor_.next_is("{") ? cursor_.rest().substr(0, kLongest) : "");
    if (!ahead.take("{")) return false;
    const bool has_min = ahead.take_number(0).has_value();
    const bool has_comma = ahead.take(",");
    const bool has_max = has_comma && ahead.take_number(0).has_value();
    return (has_min || has_max) && ahead.next_is("}");
  }

  std::optional<RepeatLimits> braces() {
    const std::size_t brace = cursor_.at();
    cursor_.skip(1);
    const auto min = cursor_.take_number(kMaxRegexRepeat);
    if (!min) {
      cursor_.fail_at(brace, "write {0,n} for {,n}");
      return std::nullopt;
    }
    RepeatLimits limits{*min, *min};
    if (cursor_.take(","))
      limits.max = cursor_.take_number(kMaxRegexRepeat).value_or(Expressions::kUnbounded);
    cursor_.take("}");
    const bool is_beyond = limits.min > kMaxRegexRepeat ||
                           (limits.max != Expressions::kUnbounded && limits.max > kMaxRegexRepeat);
    if (is_beyond)
      cursor_.fail_at(brace,
                      "a quantifier is beyond the limit of " + std::to_string(kMaxRegexRepeat));
    else if (limits.min > limits.max)
      cursor_.fail_at(brace, "a quantifier has more at least than at most");
    if (cursor_.failed()) return std::nullopt;
    return limits;
  }

  // Equal sets are written once: patterns name few sets often.
  ExpressionId written(const std::vector<CharacterRange>& characters) {
    std::vector<std::pair<char32_t, char32_t>> key;
    const std::vector<CharacterRange> ranges = sorted_ranges(characters);
    key.reserve(ranges.size());
    for (const CharacterRange& range : ranges) key.emplace_back(range.first, range.last);
    const auto [known, is_new] = written_.try_emplace(std::move(key));
    if (is_new) known->second = write_(expressions_, ranges);
    return known->second;
  }

  TextCursor cursor_;
  RegexAnchors anchors_;
  RegexSets sets_;
  const CharacterWriter& write_;
  Expressions& expressions_;
  int n_open_ = 0;
  std::map<std::vector<std::pair<char32_t, char32_t>>, ExpressionId> written_;
};

}  // namespace

Result<ExpressionId> read_regex(std::string_view pattern,
                                RegexAnchors anchors,
                                const CharacterWriter& write,
                                Expressions& expressions) {
  if (const auto invalid = utf8::first_invalid(pattern))
    return Error{ErrorCode::kInvalidValue,
                 "the pattern is not valid UTF-8 at byte " + std::to_string(*invalid)};
  return RegexReader(pattern, anchors, write, expressions).read();
}

}  // namespace foretoken
