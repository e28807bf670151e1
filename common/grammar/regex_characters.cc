#include "common/grammar/regex_characters.h"

#include <string>

#include "common/grammar/character_ranges.h"

namespace foretoken {
namespace {

const std::vector<CharacterRange> kDigits{{'0', '9'}};
const std::vector<CharacterRange> kWordCharacters{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const std::vector<CharacterRange> kSpaces{{'\t', '\r'}, {' ', ' '}};  // \t \n \v \f \r
// WhiteSpace and LineTerminator of ECMA-262: with U+FEFF, and the space separators of Unicode.
const std::vector<CharacterRange> kEcmaScriptSpaces{
    {'\t', '\r'},     {' ', ' '},       {0x00A0, 0x00A0}, {0x1680, 0x1680}, {0x2000, 0x200A},
    {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
const std::vector<CharacterRange> kLineFeed{{'\n', '\n'}};
const std::vector<CharacterRange> kEcmaScriptLineEnds{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

RegexCharacters single(char32_t character) { return {{{character, character}}, true}; }

RegexCharacters escape_refused(TextCursor& cursor, std::size_t place, std::string message) {
  cursor.fail_at(place, std::move(message));
  return single(0);
}

// \uHHHH, where two surrogates make one character, or \u{H...}; `u` is taken.
RegexCharacters read_unicode_escape(TextCursor& cursor, std::size_t place) {
  if (cursor.take("{")) {
    char32_t character = 0;
    std::size_t n_digits = 0;
    while (const auto digit = cursor.take_hex(1)) {
      character = character * 16 + *digit;
      if (++n_digits > 6) break;
    }
    if (n_digits == 0 || n_digits > 6 || !cursor.take("}") || character > kLastCharacter)
      return escape_refused(cursor, place, "\\u{...} needs the number of a code point");
    if (is_surrogate(character))
      return escape_refused(cursor, place, "a surrogate is not a character");
    return single(character);
  }
  const auto first = cursor.take_hex(4);
  if (!first) return escape_refused(cursor, place, "\\u needs four hexadecimal digits");
  if (!is_surrogate(*first)) return single(*first);
  if (*first < 0xDC00 && cursor.take("\\u")) {
    const auto second = cursor.take_hex(4);
    if (second && *second >= 0xDC00 && *second <= 0xDFFF)
      return single(0x10000 + ((*first - 0xD800) << 10) + (*second - 0xDC00));
  }
  return escape_refused(cursor, place, "a surrogate is not a character");
}

// To allow: the smaller set; to leave out: the larger one.
const std::vector<CharacterRange>& spaces(RegexSets sets, bool is_left_out) {
  return sets == RegexSets::kEcmaScript && is_left_out ? kEcmaScriptSpaces : kSpaces;
}

std::optional<RegexCharacters> named_set(char32_t name, RegexPlace place, RegexSets sets) {
  const bool is_negated = place == RegexPlace::kInNegatedClass;
  switch (name) {
    case 'd':
      return RegexCharacters{kDigits};
    case 'D':
      return RegexCharacters{other_characters(kDigits)};
    case 'w':
      return RegexCharacters{kWordCharacters};
    case 'W':
      return RegexCharacters{other_characters(kWordCharacters)};
    case 's':
      return RegexCharacters{spaces(sets, is_negated)};
    case 'S':
      return RegexCharacters{other_characters(spaces(sets, !is_negated))};
    default:
      return std::nullopt;
  }
}

std::optional<RegexCharacters> named_control(char32_t name) {
  switch (name) {
    case 't':
      return single('\t');
    case 'n':
      return single('\n');
    case 'r':
      return single('\r');
    case 'f':
      return single('\f');
    case 'v':
      return single('\v');
    default:
      return std::nullopt;
  }
}

std::string why_escape_is_refused(char32_t name) {
  switch (name) {
    case 'b':
    case 'B':
      return "word boundaries are not supported";
    case 'p':
    case 'P':
      return "Unicode properties (\\p) are not supported";
    case 'A':
    case 'Z':
    case 'z':
    case 'G':
      return "anchors other than ^ and $ are not supported";
    case 'k':
      return "back-references are not supported";
    default:
      break;
  }
  if (name >= '1' && name <= '9') return "back-references are not supported";
  return std::string("the escape \\") + static_cast<char>(name) + " is not supported";
}

bool is_ascii_letter_or_digit(char32_t character) {
  return (character >= '0' && character <= '9') || (character >= 'A' && character <= 'Z') ||
         (character >= 'a' && character <= 'z');
}

RegexCharacters read_class_item(TextCursor& cursor, RegexPlace place, RegexSets sets) {
  if (cursor.next_is("[:") && cursor.rest().find(":]") != std::string_view::npos) {
    cursor.fail("classes by name ([:...:]) are not supported");
    return single(0);
  }
  if (cursor.take("\\")) return read_regex_escape(cursor, place, sets);
  return single(cursor.take_character());
}

}  // namespace

std::vector<CharacterRange> regex_dot(RegexSets sets) {
  return other_characters(sets == RegexSets::kEcmaScript ? kEcmaScriptLineEnds : kLineFeed);
}

RegexCharacters read_regex_escape(TextCursor& cursor, RegexPlace place, RegexSets sets) {
  const std::size_t backslash = cursor.at() - 1;
  if (cursor.at_end()) return escape_refused(cursor, backslash, "a backslash ends the text");
  const char32_t name = cursor.take_character();
  if (auto set = named_set(name, place, sets)) return *set;
  if (auto control = named_control(name)) return *control;
  if (name == 'x') {
    const auto character = cursor.take_hex(2);
    if (!character) return escape_refused(cursor, backslash, "\\x needs two hexadecimal digits");
    return single(*character);
  }
  if (name == 'u') return read_unicode_escape(cursor, backslash);
  if (name == 'b' && place != RegexPlace::kOutsideClass) return single('\b');
  if (name == '0' && !cursor.next_is_one_of("0123456789")) return single(0);
  if (is_ascii_letter_or_digit(name))
    return escape_refused(cursor, backslash, why_escape_is_refused(name));
  return single(name);
}

std::vector<CharacterRange> read_regex_class(TextCursor& cursor, RegexSets sets) {
  const std::size_t bracket = cursor.at() - 1;
  const bool is_negated = cursor.take("^");
  const RegexPlace in_class = is_negated ? RegexPlace::kInNegatedClass : RegexPlace::kInClass;
  bool has_spaces = false, has_others = false;
  std::vector<CharacterRange> ranges;
  if (cursor.next_is("]"))
    cursor.fail_at(bracket, "a class must not begin with ']'; write \\] for the character");
  while (!cursor.at_end() && !cursor.next_is("]")) {
    const std::size_t place = cursor.at();
    has_spaces |= cursor.next_is("\\s");
    has_others |= cursor.next_is("\\S");
    RegexCharacters item = read_class_item(cursor, in_class, sets);
    const bool is_range = cursor.next_is("-") && !cursor.next_is("-]") && cursor.rest().size() > 1;
    if (is_range) {
      cursor.skip(1);
      const RegexCharacters last = read_class_item(cursor, in_class, sets);
      if (!item.is_single || !last.is_single)
        cursor.fail_at(place, "a range must go from one character to another");
      else if (item.ranges[0].first > last.ranges[0].first)
        cursor.fail_at(place, "a range must not go backwards");
      else
        item.ranges[0].last = last.ranges[0].first;
    }
    ranges.insert(ranges.end(), item.ranges.begin(), item.ranges.end());
  }
  if (!cursor.take("]")) cursor.fail_at(bracket, "a class has no end");
  if (has_spaces && has_others) ranges = {kAllCharacters};  // neither set has the other spaces
  return is_negated ? other_characters(ranges) : ranges;
}

}  // namespace foretoken
