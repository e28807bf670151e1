// GBNF: what grammars allow, and what is refused with its line.
#include "common/grammar/gbnf.h"

#include <gmock/gmock.h>

#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tests/grammar/allows.h"

namespace foretoken {
namespace {

using namespace std::string_view_literals;
using testing::HasSubstr;

struct GbnfCase {
  std::string_view grammar;
  std::vector<std::string_view> allowed;
  std::vector<std::string_view> others;
};

void expect_answers(const GbnfCase& one) {
  for (const auto text : one.allowed)
    EXPECT_TRUE(test::allows(GrammarKind::kGbnf, one.grammar, text)) << one.grammar << " " << text;
  for (const auto text : one.others)
    EXPECT_FALSE(test::allows(GrammarKind::kGbnf, one.grammar, text)) << one.grammar << " " << text;
}

std::string gbnf_message_of(std::string_view text) {
  const auto grammar = Grammar::read(GrammarKind::kGbnf, text);
  return grammar.ok() ? "accepted" : grammar.error().message;
}

TEST(Gbnf, ReadsLiteralsAndClasses) {
  for (const GbnfCase& one : std::vector<GbnfCase>{
           {R"(root ::= "a\n\r\t\\\"\x41\u00e9\U0001F600")",
            {"a\n\r\t\\\"A\xC3\xA9\xF0\x9F\x98\x80"},
            {"a", ""}},
           {"root ::= \"\" \"b\"", {"b"}, {""}},
           {"root ::= [a-cx-]", {"a", "b", "c", "x", "-"}, {"d", "ab"}},
           {"root ::= [^a-c\\n]", {"d", "\xC3\xA9"}, {"a", "\n", ""}},
           {R"(root ::= [\]\[\\\x30-\u0039])", {"]", "[", "\\", "0", "9"}, {"x", ":"}},
           {"root ::= \"a\" . \"c\"", {"abc", "a\nc", "a\xE2\x82\xAC\x63"}, {"ac", "a\xE2\x63"}},
       })
    expect_answers(one);
}

TEST(Gbnf, ReadsGroupsAndRepeats) {
  for (const GbnfCase& one : std::vector<GbnfCase>{
           {"root ::= \"ab\"+", {"ab", "abab"}, {"", "abb"}},
           {"root ::= \"a\" *\t\"b\" ? | \"c\"", {"", "aab", "b", "c"}, {"bb", "ac"}},
           {"root ::= (\"a\" | [bc] \"d\"){2}", {"aa", "abd", "cda"}, {"a", "aaa", "b"}},
           {"root ::= \"a\"{2,} \"b\"{1,2}", {"aab", "aaabb"}, {"ab", "aabbb"}},
           {"root ::= \"a\"{0} \"b\"", {"b"}, {"ab"}},
           {"root ::= \"a\"{2}{3}", {"aaaaaa"}, {"aaaaa"}},
           {"root ::= \"a\" | ", {"", "a"}, {"aa"}},
       })
    expect_answers(one);
}

TEST(Gbnf, RulesCallOneAnother) {
  const GbnfCase nested{"root ::= \"(\" root \")\" | x_1-y\nx_1-y ::= [0-9]+",
                        {"1", "(12)", "((3))"},
                        {"", "(1", "1)", "()"}};
  expect_answers(nested);
}

TEST(Gbnf, RulesRunOverLinesInGroupsAndAfterBars) {
  for (const GbnfCase& one : std::vector<GbnfCase>{
           {"# a comment\n\n  root ::= \"a\" | # one\n  # two\n \"b\" # \"three\"\nx ::= \"c\"\n",
            {"a", "b"},
            {"c", ""}},
           {"root ::= (\n \"a\"\n b\n # (\n)\nb ::= \"b\"", {"ab"}, {"a"}},
           {"root ::=\n  \"a\"\n", {"a"}, {""}},
           {"root ::= \"#\" [#] # \"\n", {"##"}, {"#"}},
       })
    expect_answers(one);
}

struct RefusedGbnf {
  std::string_view text;
  std::string_view message;
};

TEST(Gbnf, RefusesWithTheLine) {
  constexpr RefusedGbnf kRefused[] = {
      {"root ::= \"a\"\n  | \"b\"", "line 2: a rule must begin with its name"},
      {"root ::= \"a\"\n\nx ::= y z\n", "line 3: the rule 'y' is not defined"},
      {"root ::= \"a\"\nroot ::= \"b\"", "line 2: the rule 'root' is defined twice"},
      {"x ::= \"a\"", "there is no rule 'root'"},
      {"", "there is no rule 'root'"},
      {"root \"a\"", "line 1: a rule must begin with its name and '::='"},
      {"root ::= \"a\"\nroot2 = \"a\"", "line 2: a rule must begin with its name"},
      {"root ::= \"a\"\n\"b\"", "line 2: a rule must begin with its name"},
      {"root ::= \"a\" x ::= \"b\"", "line 1: a literal, a class, a group, a name or the end"},
      {"root ::= \"a\" $", "line 1: a literal, a class, a group, a name or the end"},
      {"root ::= \"a\" )", "line 1: a literal, a class, a group, a name or the end"},
      {"root ::= (\n\"a\"", "line 1: a group has no end"},
      {"root ::= (\"a\"\nx ::= \"b\")", "line 1: a group has no end"},
      {"root ::=\n \"a\n", "line 2: a literal has no end"},
      {"root ::=\n [a", "line 2: a class has no end"},
      {"root ::= [a-", "line 1: a class has no end"},
      {"root ::= \"\\q\"", "line 1: an escape must be"},
      {"root ::= \"a\"\nx ::= [\\d]", "line 2: an escape must be"},
      {"root ::= \"\\x4\"", "line 1: an escape must be"},
      {"root ::= \"\\U00110000\"", "line 1: an escape names no character"},
      {"root ::= \"\\uD800\"", "line 1: an escape names no character"},
      {"root ::= \"\\", "line 1: an escape must be"},
      {"root ::= [b-a]", "line 1: a range must not go backwards"},
      {"root ::= *", "line 1: a literal, a class, a group, a name or the end"},
      {"root ::= \"a\" | {2}", "line 1: a literal, a class, a group, a name or the end"},
      {"root ::= \"a\"{,2}", "line 1: a repetition must be"},
      {"root ::= \"a\"{2001}", "line 1: a repetition is beyond the limit of 2000"},
      {"root ::= \"a\"{2,1}", "line 1: a repetition has more at least"},
      {"root ::= \"a\" \\", "line 1: a literal, a class, a group, a name or the end"},
  };
  for (const auto& [text, message] : kRefused)
    EXPECT_THAT(gbnf_message_of(text), HasSubstr(message)) << text;
}

TEST(Gbnf, LeftRecursionIsRefusedWhenItIsCompiled) {
  Expressions expressions;
  const auto read = read_gbnf("root ::= root \"a\" | \"b\"", expressions);
  ASSERT_TRUE(read.ok());
  EXPECT_FALSE(Grammar::compile(expressions, *read).ok());
}

TEST(Gbnf, LimitsNesting) {
  const auto nested = [](std::size_t n) {
    return "root ::= " + std::string(n, '(') + "\"a\"" + std::string(n, ')');
  };
  EXPECT_EQ(gbnf_message_of(nested(200)), "accepted");
  EXPECT_EQ(gbnf_message_of(nested(201)), "line 1: groups are nested deeper than 200 levels");
  const std::string stacked = "root ::= \"a\"" + std::string(60000, '?');
  EXPECT_NE(gbnf_message_of(stacked), "accepted");
}

TEST(Gbnf, AnyBytesAreReadOrRefused) {
  constexpr std::string_view kPieces[] = {
      "(", ")", "[",   "]", "{",  "}", "|",  "*",    "+",     "?",     "^", "\\",   "-",
      "a", "1", "::=", ".", "\"", "#", "\n", "\xC3", "\"a\"", "\"b\"", " ", "\0"sv, "\nroot ::= "};
  std::mt19937 random(29);
  int n_read = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text = "root ::= ";
    for (auto n = random() % 10; n > 0; --n) text += kPieces[random() % std::size(kPieces)];
    Expressions expressions;
    const auto read = read_gbnf(text, expressions);
    if (!read.ok()) {
      EXPECT_FALSE(read.error().message.empty());
    }
    n_read += read.ok();
  }
  EXPECT_GT(n_read, 1000);
}

}  // namespace
}  // namespace foretoken
