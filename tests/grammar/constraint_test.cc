// Which tokens may follow: against trying each token alone, whatever the automaton remembers and
// however little it may.
#include "common/grammar/constraint.h"

#include <gtest/gtest.h>

#include <random>
#include <regex>
#include <string>
#include <vector>

#include "common/grammar/automaton.h"
#include "tests/grammar/allows.h"
#include "tests/grammar/demo_vocabulary.h"

namespace foretoken {
namespace {

struct Case {
  GrammarKind kind;
  std::string_view text;
};

constexpr Case kCases[] = {
    {GrammarKind::kRegex, "(ab|ba|a0)*[01]{2,5}"},
    {GrammarKind::kRegex, "[^a]*a"},
    {GrammarKind::kRegex, ".*a.{3,9}"},
    {GrammarKind::kRegex, "(a|ab|b)*:(0|01|1)+"},
    {GrammarKind::kGbnf, "root ::= \"[\" (root (\",\" root)*)? \"]\" | [ab]+\n"},
    {GrammarKind::kGbnf, "root ::= a b | b a\na ::= \"a\" a | \"0\"\nb ::= a? \":\" b | \"1\"\n"},
    {GrammarKind::kJsonSchema, "{}"},
    {GrammarKind::kJsonSchema,
     R"({"type": "object", "properties": {"a": {"type": "string", "maxLength": 9}, "ab": {"$ref": "#"}}, "required": ["a"]})"},
    {GrammarKind::kJsonSchema,
     R"({"type": "array", "items": {"enum": ["a", "b", 0, "ab:"]}, "maxItems": 4})"},
};

std::vector<std::string> pieces(std::uint32_t seed) {
  constexpr std::string_view kBytes = "ab01\":,{}[]-\\\xC3\xA9";
  std::mt19937 random(seed);
  std::vector<std::string> all{""};
  for (const char byte : kBytes) all.emplace_back(1, byte);
  while (all.size() < 400) {
    std::string piece;
    for (auto n = 1 + random() % 5; n > 0; --n) piece += kBytes[random() % kBytes.size()];
    all.push_back(piece);
  }
  return all;
}

Constraints over(const std::vector<std::string>& texts, const Constraints::Limits& limits = {}) {
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  return Constraints(views, limits);
}

std::vector<TokenId> ids(std::span<const std::uint32_t> mask) {
  std::vector<TokenId> out;
  for (std::size_t id = 0; id < mask.size() * 32; ++id)
    if (mask[id / 32] >> (id % 32) & 1) out.push_back(static_cast<TokenId>(id));
  return out;
}

// Each token alone, on an automaton that has seen nothing else.
std::vector<TokenId> tried(const std::shared_ptr<const Grammar>& grammar,
                           const std::vector<std::string>& texts,
                           std::string_view before) {
  Automaton automaton(grammar);
  Automaton::State place = automaton.start();
  for (const char byte : before) place = automaton.step(place, static_cast<unsigned char>(byte));
  std::vector<TokenId> out;
  for (std::size_t id = 0; id < texts.size(); ++id) {
    Automaton::State state = place;
    for (const char byte : texts[id])
      state = automaton.step(state, static_cast<unsigned char>(byte));
    if (!texts[id].empty() && state != Automaton::kDead) out.push_back(static_cast<TokenId>(id));
  }
  return out;
}

TEST(Constraint, AllowsTheTokensThatMayFollowHoweverLittleIsRemembered) {
  const auto texts = pieces(1);
  Constraints roomy = over(texts);
  Constraints tight = over(texts, {.automaton_bytes = 1, .mask_bytes = 1});
  Constraints small = over(texts, {.automaton_bytes = 20'000, .mask_bytes = 4'000});
  std::mt19937 random(2);
  int n_ended = 0;
  for (const Case& each : kCases) {
    SCOPED_TRACE(each.text);
    const auto grammar = Grammar::read(each.kind, each.text);
    ASSERT_TRUE(grammar.ok()) << grammar.error().message;
    for (int walk = 0; walk < 12; ++walk) {
      Constraint a = *roomy.open(each.kind, each.text);
      Constraint b = *tight.open(each.kind, each.text);
      Constraint c = *small.open(each.kind, each.text);
      std::string text;
      for (int n = 0; n < 40 && !a.is_complete(); ++n) {
        const std::vector<TokenId> allowed = ids(a.allowed());
        ASSERT_EQ(allowed, ids(b.allowed())) << text;
        ASSERT_EQ(allowed, ids(c.allowed())) << text;
        if (n % 4 == 0) {
          ASSERT_EQ(allowed, tried(*grammar, texts, text)) << text;
        }
        ASSERT_EQ(a.may_end(), test::allows(*grammar, text)) << text;
        if (allowed.empty()) break;
        const TokenId token = allowed[random() % allowed.size()];
        text += texts[static_cast<std::size_t>(token)];
        for (Constraint* each_one : {&a, &b, &c}) each_one->take(token);
        ASSERT_EQ(a.may_end(), b.may_end());
        ASSERT_EQ(a.is_complete(), c.is_complete());
      }
      n_ended += a.is_complete() ? 1 : 0;
    }
  }
  EXPECT_GT(n_ended, 20);
}

TEST(Constraint, ACopyGoesItsOwnWay) {
  const std::vector<std::string> texts{"", "a", "b", "ab"};
  Constraints constraints = over(texts);
  Constraint first = *constraints.open(GrammarKind::kRegex, "(ab)+");
  first.take(1);
  Constraint second = first;
  second.take(2);
  EXPECT_TRUE(second.may_end());
  EXPECT_FALSE(first.may_end());
  EXPECT_EQ(ids(first.allowed()), (std::vector<TokenId>{2}));
  EXPECT_EQ(ids(second.allowed()), (std::vector<TokenId>{1, 3}));
  first.take(3);  // not allowed
  EXPECT_TRUE(ids(first.allowed()).empty());
  EXPECT_FALSE(first.may_end());
  EXPECT_FALSE(first.is_complete());
}

TEST(Constraint, OutlivesTheGrammarsThatAreKept) {
  const std::vector<std::string> texts{"", "a", "b"};
  Constraints constraints = over(texts);
  Constraint first = *constraints.open(GrammarKind::kRegex, "ab");
  for (int i = 0; i < 100; ++i)
    ASSERT_TRUE(constraints.open(GrammarKind::kRegex, "a{" + std::to_string(i + 1) + "}").ok());
  first.take(1);
  EXPECT_EQ(ids(first.allowed()), (std::vector<TokenId>{2}));
}

TEST(Constraint, CallsAreAsDeepAsTheLimitAndEveryOneComesBack) {
  const std::vector<std::string> texts{"", "[", "]", "a"};
  Constraints constraints = over(texts);
  Constraint place = *constraints.open(GrammarKind::kGbnf, "root ::= \"[\" root \"]\" | \"a\"\n");
  int depth = 0;
  while (ids(place.allowed()) != std::vector<TokenId>{3}) {
    place.take(1);
    ASSERT_LE(++depth, 1000);
  }
  EXPECT_EQ(depth, static_cast<int>(Grammar::kMaxDepth));
  place.take(3);
  for (int i = 0; i < depth; ++i) {
    EXPECT_FALSE(place.is_complete());
    ASSERT_EQ(ids(place.allowed()), (std::vector<TokenId>{2}));
    place.take(2);
  }
  EXPECT_TRUE(place.is_complete());
}

TEST(Constraint, TokensThatBeginWithinACharacterMayFollow) {
  const std::vector<std::string> texts{"", "\xC3", "\xA9", "\xC3\xA9", "\xC3\xA9\xC3"};
  Constraints constraints = over(texts);
  Constraint place = *constraints.open(GrammarKind::kRegex, "é+");
  EXPECT_EQ(ids(place.allowed()), (std::vector<TokenId>{1, 3, 4}));
  place.take(4);
  EXPECT_FALSE(place.may_end());
  EXPECT_EQ(ids(place.allowed()), (std::vector<TokenId>{2}));
  place.take(2);
  EXPECT_TRUE(place.may_end());
}

TEST(Constraint, WithTheVocabularyOfTheDemoPairAnAnswerIsWhatTheSchemaSays) {
  const auto tokenizer = test::demo_tokenizer();
  const auto texts = test::texts_of(*tokenizer);
  Constraints constraints = over(texts);
  Constraint place = *constraints.open(
      GrammarKind::kJsonSchema,
      R"({"type": "object", "properties": {"name": {"enum": ["Tom", "Ana"]}, "age": {"type": "integer", "minimum": 1, "maximum": 9}},
          "required": ["name", "age"], "additionalProperties": false})");
  std::mt19937 random(4);
  std::vector<TokenId> answer;
  while (!place.is_complete()) {
    const auto allowed = ids(place.allowed());
    ASSERT_FALSE(allowed.empty());
    for (const TokenId token : allowed) ASSERT_FALSE(tokenizer->is_skipped(token));
    answer.push_back(allowed[random() % allowed.size()]);
    place.take(answer.back());
  }
  const std::string text = tokenizer->decode(answer, SkipSpecialTokens::kYes);
  const std::regex whole(R"xx(\{"name":"(Tom|Ana)","age":[1-9]\})xx");
  EXPECT_TRUE(std::regex_match(text, whole)) << text;
}

}  // namespace
}  // namespace foretoken
