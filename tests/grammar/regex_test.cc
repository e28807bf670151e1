// Regular expressions: what they allow, against tables and std::regex, and what is refused.
#include "common/grammar/regex.h"

#include <gmock/gmock.h>

#include <random>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "tests/grammar/allows.h"

namespace foretoken {
namespace {

using namespace std::string_view_literals;
using testing::HasSubstr;

struct RegexCase {
  std::string_view pattern;
  std::vector<std::string_view> allowed;
  std::vector<std::string_view> others;
};

ExpressionId regex_test_writer(Expressions& expressions, std::span<const CharacterRange> ranges) {
  return expressions.character(ranges);
}

void expect_texts(const RegexCase& one) {
  for (const auto text : one.allowed)
    EXPECT_TRUE(test::allows(GrammarKind::kRegex, one.pattern, text)) << one.pattern << " " << text;
  for (const auto text : one.others)
    EXPECT_FALSE(test::allows(GrammarKind::kRegex, one.pattern, text))
        << one.pattern << " " << text;
}

std::string message_of(std::string_view pattern) {
  const auto grammar = Grammar::read(GrammarKind::kRegex, pattern);
  return grammar.ok() ? "accepted" : grammar.error().message;
}

TEST(Regex, ReadsCharactersAndEscapes) {
  for (const RegexCase& one : std::vector<RegexCase>{
           {"abc", {"abc"}, {"", "ab", "abcd"}},
           {"\\d\\D", {"1a", "1\xC3\xA9", "1\n"}, {"11", "aa", "1", "\xD9\xA1x"}},  // Arabic 1
           {"\\w\\W", {"_-", "Z\xE2\x82\xAC", "9 "}, {"-_", "__"}},
           {"\\s\\S", {" a", "\va", "\f\xC3\xA9", "\ra"}, {"aa", "  ", "\xC2\xA0\x61"}},
           {"\\t\\n\\r\\f\\v\\0", {"\t\n\r\f\v\0"sv}, {"\t\n\r\f\v0"}},
           {"\\x41\\u00e9\\u{20ac}\\uD83D\\uDE00",
            {"A\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"},
            {"A"}},
           {"\\.\\*\\[\\]\\{\\(\\\\\\/\\-\\^\\$", {".*[]{(\\/-^$"}, {"a"}},
           {"a.c", {"abc", "a\xF0\x9F\x98\x80\x63", "a\rc"}, {"a\nc", "ac", "a\x80\x63"}},
           {"{a}{,x}x{", {"{a}{,x}x{"}, {"aaax{"}},
       })
    expect_texts(one);
}

TEST(Regex, ReadsClasses) {
  for (const RegexCase& one : std::vector<RegexCase>{
           {"[a-cx]", {"a", "b", "c", "x"}, {"d", "-", "ab", ""}},
           {"[^a-c]", {"d", "\n", "\xC3\xA9", "\xF4\x8F\xBF\xBF"}, {"a", "c", "", "\xED\xA0\x80"}},
           {"[-a]", {"-", "a"}, {"b"}},
           {"[a\\-z]", {"-", "a", "z"}, {"b"}},
           {"[\\w-]", {"-", "q"}, {"+"}},
           {"[^\\d\\s]", {"a"}, {"1", " "}},
           {"[\\]\\\\[(.^$]", {"]", "\\", "[", ".", "(", "^", "$"}, {"a"}},
           {"[\\x00-\\u{7f}]", {"\0"sv, "\x7F"}, {"\xC2\x80"}},
           {"[\xC3\xA0-\xC3\xA9]", {"\xC3\xA0", "\xC3\xA5", "\xC3\xA9"}, {"\xC3\xAA", "\xC3"}},
           {"a|[^\\s\\S]", {"a"}, {"b", ""}},
       })
    expect_texts(one);
}

TEST(Regex, ReadsGroupsAndRepeats) {
  for (const RegexCase& one : std::vector<RegexCase>{
           {"(ab|c)*", {"", "ab", "cab", "ccc"}, {"a", "abb"}},
           {"(?:a)(?<one>b)(?P<two_2>c)", {"abc"}, {"ab"}},
           {"a{2}", {"aa"}, {"a", "aaa"}},
           {"a{2,}", {"aa", "aaaaa"}, {"a"}},
           {"a{1,3}b", {"ab", "aaab"}, {"b", "aaaab"}},
           {"a{0}b", {"b"}, {"ab"}},
           {"ab+?c*?d??", {"ab", "abbccd"}, {"a", "abdd"}},
           {"a|b|", {"a", "b", ""}, {"ab"}},
           {"(a|)(|b)c", {"c", "ac", "bc", "abc"}, {"ab"}},
           {"(a*)*b()", {"b", "aaab"}, {"a"}},
           {"^a$|^b|c$", {"a", "b", "c"}, {"^a", "a$", "bx"}},
       })
    expect_texts(one);
  EXPECT_TRUE(test::allows(GrammarKind::kRegex, "a{1000}", std::string(1000, 'a')));
  EXPECT_FALSE(test::allows(GrammarKind::kRegex, "a{1000}", std::string(999, 'a')));
}

bool search_allows(std::string_view pattern, std::string_view text) {
  Expressions expressions;
  const auto start = read_regex(pattern, RegexAnchors::kSearch, regex_test_writer, expressions);
  EXPECT_TRUE(start.ok()) << pattern;
  const auto grammar = Grammar::compile(expressions, *start);
  EXPECT_TRUE(grammar.ok()) << pattern;
  return test::allows(*grammar, text);
}

TEST(Regex, SearchesBetweenAnchors) {
  EXPECT_TRUE(search_allows("b", "a\nb\xC3\xA9"));
  EXPECT_FALSE(search_allows("b", "a"));
  EXPECT_TRUE(search_allows("^b", "ba"));
  EXPECT_FALSE(search_allows("^b", "ab"));
  EXPECT_TRUE(search_allows("b$", "ab"));
  EXPECT_FALSE(search_allows("b$", "ba"));
  EXPECT_FALSE(search_allows("^b$", "bb"));
  EXPECT_TRUE(search_allows("^b$|c", "xcx"));
  EXPECT_FALSE(search_allows("^b$|c", "xbx"));
  for (const auto pattern : {"", "^", "$"}) {
    EXPECT_TRUE(search_allows(pattern, "")) << pattern;
    EXPECT_TRUE(search_allows(pattern, "any\n")) << pattern;
  }
}

// The spaces and ends of lines of ECMA-262, sections "White Space" and "Line Terminators".
constexpr std::string_view kAsciiSpaces[] = {"\t", "\n", "\v", "\f", "\r", " "};
constexpr std::string_view kOtherSpaces[] = {"\u00A0", "\u1680", "\u2000", "\u2001", "\u2002",
                                             "\u2003", "\u2004", "\u2005", "\u2006", "\u2007",
                                             "\u2008", "\u2009", "\u200A", "\u2028", "\u2029",
                                             "\u202F", "\u205F", "\u3000", "\uFEFF"};

TEST(Regex, SearchesForNoCharacterThatEcmaScriptDoesNotAllow) {
  for (const auto space : kAsciiSpaces) {
    EXPECT_FALSE(search_allows("^\\S$", space));
    EXPECT_FALSE(search_allows("^[^\\s]$", space));
    EXPECT_TRUE(search_allows("^\\s$", space));
    EXPECT_TRUE(search_allows("^[^\\S]$", space));
    EXPECT_TRUE(search_allows("^[\\s\\S]$", space));
  }
  for (const auto space : kOtherSpaces) {
    for (const auto pattern : {"^\\S$", "^[\\S]$", "^[^\\s]$", "^[^a\\s]$", "^\\s$", "^[^\\S]$"})
      EXPECT_FALSE(search_allows(pattern, space)) << pattern << " " << space;
    for (const auto pattern : {"^[\\s\\S]$", "^[\\S\\s]$", "^\\W$", "^[^a]$"})
      EXPECT_TRUE(search_allows(pattern, space)) << pattern << " " << space;
  }
  for (const auto other : {"a", "\u00E9", "\u1FFF", "\u200B", "\u2027", "\u202A", "\U0001F600"}) {
    for (const auto pattern : {"^\\S$", "^[^\\s]$", "^.$", "^[\\s\\S]$"})
      EXPECT_TRUE(search_allows(pattern, other)) << pattern << " " << other;
  }
  for (const auto line_end : {"\n", "\r", "\u2028", "\u2029"})
    EXPECT_FALSE(search_allows("^.$", line_end)) << line_end;
  for (const auto space : {"\t", "\v", "\f", "\u00A0", "\xC2\x85"})
    EXPECT_TRUE(search_allows("^.$", space)) << space;
}

TEST(Regex, MatchesAWholeTextWithTheSpacesOfAscii) {
  for (const auto space : kOtherSpaces) {
    for (const auto pattern : {"\\S", "[^\\s]", "."})
      EXPECT_TRUE(test::allows(GrammarKind::kRegex, pattern, space)) << pattern << " " << space;
    EXPECT_FALSE(test::allows(GrammarKind::kRegex, "\\s", space)) << space;
  }
  EXPECT_TRUE(test::allows(GrammarKind::kRegex, ".", "\r"));
  EXPECT_FALSE(test::allows(GrammarKind::kRegex, ".", "\n"));
}

std::string random_pattern(std::mt19937& random, int depth) {
  constexpr std::string_view kAtoms[] = {"a", "b", "c", ".", "[ab]", "[^a]", "\\w", "[a-c]"};
  constexpr std::string_view kRepeats[] = {"", "", "", "*", "+", "?", "{2}", "{1,2}", "{2,}", "*?"};
  std::string pattern;
  for (auto n_parts = 1 + random() % 3; n_parts > 0; --n_parts) {
    if (depth > 0 && random() % 3 == 0)
      pattern += "(" + random_pattern(random, depth - 1) + ")";
    else
      pattern += kAtoms[random() % std::size(kAtoms)];
    pattern += kRepeats[random() % std::size(kRepeats)];
  }
  if (random() % 4 == 0) pattern += "|" + random_pattern(random, depth);
  return pattern;
}

TEST(Regex, AgreesWithTheStandardLibrary) {
  std::mt19937 random(17);
  int n_allowed = 0, n_texts = 0;
  for (int round = 0; round < 400; ++round) {
    const std::string pattern = random_pattern(random, 1);
    const std::regex reference(pattern);
    const auto grammar = Grammar::read(GrammarKind::kRegex, pattern);
    ASSERT_TRUE(grammar.ok()) << pattern << ": " << grammar.error().message;
    for (int i = 0; i < 40; ++i) {
      std::string text;
      for (auto n = random() % 7; n > 0; --n) text += "abcd-"[random() % 5];
      const bool expected = std::regex_match(text, reference);
      ASSERT_EQ(test::allows(*grammar, text), expected) << pattern << " " << text;
      n_allowed += expected;
      ++n_texts;
    }
  }
  EXPECT_GT(n_allowed, n_texts / 20);
  EXPECT_LT(n_allowed, n_texts * 19 / 20);
}

struct RefusedRegex {
  std::string_view pattern;
  std::string_view message;
};

TEST(Regex, RefusesWithTheByte) {
  constexpr RefusedRegex kRefused[] = {
      {"a(?=b)", "byte 1: look-around"},
      {"(?!b)", "byte 0: look-around"},
      {"(?<=b)", "byte 0: look-around"},
      {"(?<!b)", "byte 0: look-around"},
      {"(a)\\1", "byte 3: back-references"},
      {"(?<n>a)\\k<n>", "byte 7: back-references"},
      {"(?P<n>a)(?P=n)", "byte 8: back-references"},
      {"\\bword", "byte 0: word boundaries"},
      {"a\\B", "byte 1: word boundaries"},
      {"\\Aa", "byte 0: anchors other than"},
      {"a\\Z", "byte 1: anchors other than"},
      {"a++", "possessive quantifiers"},
      {"a{2}+", "possessive quantifiers"},
      {"\\p{L}", "byte 0: Unicode properties"},
      {"(?i)a", "byte 0: groups that begin with '(?'"},
      {"(?>a)", "byte 0: groups that begin with '(?'"},
      {"(?<>a)", "byte 0: the name of a group"},
      {"(?<n", "byte 0: the name of a group"},
      {"\\q", "byte 0: the escape \\q"},
      {"[\\q]", "byte 1: the escape \\q"},
      {"\\01", "byte 0: the escape \\0"},
      {"a\\", "byte 1: a backslash ends the text"},
      {"\\x4", "byte 0: \\x needs"},
      {"\\u12", "byte 0: \\u needs"},
      {"\\u{}", "byte 0: \\u{...} needs"},
      {"\\u{110000}", "byte 0: \\u{...} needs"},
      {"\\uD800", "byte 0: a surrogate"},
      {"x(a", "byte 1: a group has no end"},
      {"a)", "byte 1: ')' closes no group"},
      {"x[a", "byte 1: a class has no end"},
      {"[a-", "byte 0: a class has no end"},
      {"a[]b]", "byte 1: a class must not begin with ']'"},
      {"[^]]", "byte 0: a class must not begin with ']'"},
      {"[[:alpha:]]", "byte 1: classes by name"},
      {"[b-a]", "byte 1: a range must not go backwards"},
      {"[\\d-z]", "byte 1: a range must go from one character"},
      {"*a", "byte 0: there is nothing to repeat"},
      {"a|+", "byte 2: there is nothing to repeat"},
      {"(?:{2})", "byte 3: there is nothing to repeat"},
      {"^*", "byte 1: there is nothing to repeat"},
      {"a**", "byte 2: a quantifier must not follow another"},
      {"a???", "byte 3: a quantifier must not follow another"},
      {"a{,3}", "byte 1: write {0,n}"},
      {"a{1001}", "byte 1: a quantifier is beyond the limit of 1000"},
      {"a{3,99999999999999999999}", "byte 1: a quantifier is beyond the limit of 1000"},
      {"a{3,2}", "byte 1: a quantifier has more at least"},
      {"a^b", "byte 1: '^' is supported only"},
      {"a$b", "'$' is supported only"},
      {"(^a)", "byte 1: '^' is supported only"},
      {"(a$)", "byte 2: '$' is supported only"},
      {"a$*", "'$' is supported only"},
      {"", "grammar"},
  };
  for (const auto& [pattern, message] : kRefused)
    EXPECT_THAT(message_of(pattern), HasSubstr(message)) << pattern;
}

TEST(Regex, LimitsNesting) {
  const auto nested = [](std::size_t n) { return std::string(n, '(') + "a" + std::string(n, ')'); };
  EXPECT_EQ(message_of(nested(200)), "accepted");
  EXPECT_THAT(message_of(nested(201)), HasSubstr("at byte 200: groups are nested deeper than 200"));
  EXPECT_THAT(message_of(std::string(60000, '(')), HasSubstr("nested deeper than 200"));
}

TEST(Regex, RefusesTextThatIsNotUtf8) {
  Expressions expressions;
  const auto read = read_regex("a\xC3", RegexAnchors::kWhole, regex_test_writer, expressions);
  ASSERT_FALSE(read.ok());
  EXPECT_THAT(read.error().message, HasSubstr("not valid UTF-8 at byte 1"));
}

TEST(Regex, AnyBytesAreReadOrRefused) {
  constexpr std::string_view kPieces[] = {"(",  ")", "[", "]",  "{",    "}",           "|", "*",
                                          "+",  "?", "^", "$",  "\\",   "-",           "a", "1",
                                          ",",  ".", "x", "u{", "P<",   "?:",          ">", "\xC3",
                                          "\n", "=", "d", "W",  "\0"sv, "\xE2\x82\xAC"};
  std::mt19937 random(23);
  int n_read = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string pattern;
    for (auto n = random() % 10; n > 0; --n) pattern += kPieces[random() % std::size(kPieces)];
    Expressions expressions;
    for (const auto anchors : {RegexAnchors::kWhole, RegexAnchors::kSearch}) {
      const auto read = read_regex(pattern, anchors, regex_test_writer, expressions);
      if (!read.ok()) {
        EXPECT_FALSE(read.error().message.empty());
      }
      n_read += read.ok();
    }
  }
  EXPECT_GT(n_read, 1000);
}

}  // namespace
}  // namespace foretoken
