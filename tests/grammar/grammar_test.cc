// What a compiled grammar allows, against a matcher that knows no automata, and what is refused
// whatever the reader: recursion at the beginning, size, depth, no text.
#include "common/grammar/grammar.h"

#include <gmock/gmock.h>

#include <deque>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/grammar/automaton.h"
#include "tests/grammar/allows.h"

namespace foretoken {
namespace {

using testing::HasSubstr;

std::string refusal_of(GrammarKind kind, std::string_view text) {
  const auto grammar = Grammar::read(kind, text);
  return grammar.ok() ? "accepted" : grammar.error().message;
}

std::string gbnf_refusal(std::string_view text) { return refusal_of(GrammarKind::kGbnf, text); }

std::string refusal_of(const Expressions& expressions, ExpressionId start) {
  const auto grammar = Grammar::compile(expressions, start);
  return grammar.ok() ? "accepted" : grammar.error().message;
}

TEST(Grammar, RefusesRulesThatCanBeginWithThemselves) {
  for (const std::string_view text :
       {"root ::= root \"a\" | \"b\"",
        "root ::= \"x\" root | mid\nmid ::= \"y\" | (root | \"z\") \"a\"",
        "root ::= \"b\"? root \"a\" | \"c\"", "root ::= (\"b\"*){3} root \"a\" | \"c\"",
        "root ::= e e root | \"a\"\ne ::= \"b\" | \"\"", "root ::= (root \"a\" | \"b\"){2,3}",
        "root ::= (\"a\"? root)* \"b\"", "root ::= root | \"a\""})
    EXPECT_EQ(gbnf_refusal(text), "the rule 'root' can begin with itself (left recursion)") << text;
  EXPECT_EQ(gbnf_refusal("root ::= \"a\" mid\nmid ::= \"b\" | mid mid"),
            "the rule 'mid' can begin with itself (left recursion)");
  EXPECT_EQ(gbnf_refusal("root ::= \"a\" root | (\"b\"? \"c\" root)* \"d\""), "accepted");
}

TEST(Grammar, RefusesWhatAllowsNoTextOrOnlyTheEmptyOne) {
  for (const std::string_view text :
       {"root ::= \"a\" root", "root ::= x{1,2}\nx ::= \"a\" y\ny ::= \"b\" x"})
    EXPECT_EQ(gbnf_refusal(text), "it allows no text at all") << text;
  for (const std::string_view text :
       {"root ::= \"\"", "root ::= x* x{3}\nx ::= \"\" | (\"a\" y)\ny ::= \"a\" y"})
    EXPECT_EQ(gbnf_refusal(text), "the grammar allows only the empty text") << text;
}

TEST(Grammar, LeavesOutWhatLeadsToNoEnd) {
  const auto grammar =
      Grammar::read(GrammarKind::kGbnf,
                    "root ::= \"a\" x | \"b\" x? | \"c\" x* | e \"d\"\nx ::= \"c\" x\ne ::= \"\"");
  ASSERT_TRUE(grammar.ok()) << grammar.error().message;
  Automaton automaton(*grammar);
  EXPECT_EQ(automaton.step(automaton.start(), 'a'), Automaton::kDead);
  for (const unsigned char byte : {'b', 'c', 'd'})
    EXPECT_TRUE(automaton.is_complete(automaton.step(automaton.start(), byte))) << byte;
}

TEST(Grammar, RefusesARuleThatIsNotDefined) {
  Expressions expressions;
  const ExpressionId start = expressions.call(expressions.new_rule("lost"));
  EXPECT_EQ(refusal_of(expressions, start), "the rule 'lost' is not defined");
}

TEST(Grammar, RefusesTextsBeyondTheLimits) {
  EXPECT_EQ(refusal_of(GrammarKind::kRegex, std::string(64 * 1024, 'a')), "accepted");
  EXPECT_EQ(refusal_of(GrammarKind::kRegex, std::string(64 * 1024 + 1, 'a')),
            "the text has 65537 bytes, and the limit is 65536");
  EXPECT_EQ(refusal_of(GrammarKind::kRegex, "a\xFF"), "the text is not valid UTF-8 at byte 1");
}

TEST(Grammar, RefusesWhatIsTooLarge) {
  EXPECT_THAT(gbnf_refusal("root ::= \"" + std::string(60, 'a') + "\"{2000}"), "accepted");
  EXPECT_THAT(refusal_of(GrammarKind::kRegex, "(ab?c?d?e?f?g?h?i?j?k?l?m?n?o?){1000}"), "accepted");
  std::string many;
  for (int i = 0; i < 250; ++i) many += "a{1000}";
  EXPECT_THAT(refusal_of(GrammarKind::kRegex, many),
              HasSubstr("too large: it has more than 200000 nodes"));
  std::string optional;  // from each node, all that follow
  for (int i = 0; i < 3000; ++i) optional += "a?";
  EXPECT_THAT(refusal_of(GrammarKind::kRegex, optional),
              HasSubstr("too large: it has more than 1000000 edges"));
  EXPECT_THAT(gbnf_refusal("root ::= \"a\"" + std::string(2000, '?')),
              HasSubstr("nested deeper than 1000 levels"));
  EXPECT_THAT(gbnf_refusal("root ::= \"a\"" + std::string(500, '?')), "accepted");
}

// Each level is as large as the two below it.
TEST(Grammar, RefusesWhatSharesItsPartsWithoutMakingThem) {
  Expressions expressions;
  ExpressionId part = expressions.empty();
  for (int i = 0; i < 100; ++i) part = expressions.sequence({part, part});
  EXPECT_THAT(refusal_of(expressions, part), HasSubstr("too large"));
}

TEST(Grammar, RepeatsOfRepeatsAreCalledAndNotCopied) {
  const auto grammar = Grammar::read(GrammarKind::kRegex, "((((a{1000}){1000}){1000}b?){1000}){2}");
  ASSERT_TRUE(grammar.ok()) << grammar.error().message;
  Automaton automaton(*grammar);
  Automaton::State state = automaton.start();
  for (int i = 0; i < 5000; ++i) {
    state = automaton.step(state, 'a');
    ASSERT_NE(state, Automaton::kDead);
  }
  EXPECT_FALSE(automaton.may_end(state));
}

TEST(Grammar, RefusesWhatNeedsMoreCallsThanTheLimitForItsShortestText) {
  const auto nested = [](int n) {
    std::string text = "root ::= \"(\" r0 \")\"\n";
    for (int i = 0; i < n; ++i)
      text += "r" + std::to_string(i) + " ::= \"(\" r" + std::to_string(i + 1) + " \")\"\n";
    return text + "r" + std::to_string(n) + " ::= \"a\"\n";
  };
  EXPECT_EQ(gbnf_refusal(nested(254)), "accepted");
  EXPECT_THAT(gbnf_refusal(nested(256)), HasSubstr("too deep"));
  // At the end of a rule a call needs none.
  EXPECT_TRUE(test::allows(GrammarKind::kGbnf, "root ::= \"a\" root | \"b\"",
                           std::string(5000, 'a') + "b"));
}

// Where a text ends that is read from a place: by trying all ways, for short texts.
class Matcher {
 public:
  Matcher(const Expressions& expressions, std::string_view text)
      : expressions_(expressions), text_(text) {}

  bool matches(ExpressionId start) { return ends(start, 0).contains(text_.size()); }

 private:
  using Places = std::set<std::size_t>;

  Places ends_from(ExpressionId part, const Places& places) {
    Places found;
    for (const std::size_t place : places) found.merge(ends(part, place));
    return found;
  }

  Places repeated(const Expression& expression, std::size_t place) {
    Places now{place}, found;
    for (std::uint32_t n = 0; n <= expression.max && !now.empty(); ++n) {
      const std::size_t n_found = found.size();
      if (n >= expression.min) found.insert(now.begin(), now.end());
      if (n > expression.min + text_.size() && found.size() == n_found) break;
      now = ends_from(expression.parts.front(), now);
    }
    return found;
  }

  Places ends(ExpressionId id, std::size_t place) {
    const auto key = std::pair(id, place);
    if (const auto known = known_.find(key); known != known_.end()) return known->second;
    known_[key] = {};  // what comes here again before any byte: only within what leads to no end
    const Expression& expression = expressions_[id];
    Places found;
    switch (expression.kind) {
      case ExpressionKind::kByteSet:
        if (place < text_.size() && expression.bytes[static_cast<unsigned char>(text_[place])])
          found.insert(place + 1);
        break;
      case ExpressionKind::kSequence:
        found.insert(place);
        for (const ExpressionId part : expression.parts) found = ends_from(part, found);
        break;
      case ExpressionKind::kAnyOf:
        for (const ExpressionId part : expression.parts) found.merge(ends(part, place));
        break;
      case ExpressionKind::kRepeat:
        found = repeated(expression, place);
        break;
      case ExpressionKind::kCall:
        found = ends(expressions_.body(expression.rule), place);
        break;
    }
    known_[key] = found;
    return found;
  }

  const Expressions& expressions_;
  std::string_view text_;
  std::map<std::pair<ExpressionId, std::size_t>, Places> known_;
};

// A few rules over the letters a, b and c.
class RandomRules {
 public:
  explicit RandomRules(std::uint32_t seed) : random_(seed) {
    for (int i = 0; i < 3; ++i) rules_.push_back(expressions.new_rule("r" + std::to_string(i)));
    for (const RuleId rule : rules_) expressions.define(rule, expression(3));
    start = expressions.call(rules_.front());
  }
  Expressions expressions;
  ExpressionId start{};

 private:
  std::size_t any(std::size_t n) { return random_() % n; }

  std::vector<ExpressionId> parts(int depth) {
    std::vector<ExpressionId> found(1 + any(3));
    for (ExpressionId& part : found) part = expression(depth - 1);
    return found;
  }

  ExpressionId expression(int depth) {
    switch (depth > 0 ? any(9) : any(2)) {
      case 0:
      case 1:
        return expressions.byte(ByteSet().set('a' + any(3)).set('a' + any(3)));
      case 2:
        return expressions.call(rules_[any(rules_.size())]);
      case 3: {
        const auto min = static_cast<std::uint32_t>(any(3));
        const auto max =
            any(2) == 0 ? Expressions::kUnbounded : min + static_cast<std::uint32_t>(any(4));
        return expressions.repeat(expression(depth - 1), min, max);
      }
      case 4:
        return any(4) == 0 ? expressions.nothing() : expressions.empty();
      case 5:
      case 6:
        return expressions.any_of(parts(depth));
      default:
        return expressions.sequence(parts(depth));
    }
  }

  std::mt19937 random_;
  std::vector<RuleId> rules_;
};

void for_all_texts(std::size_t longest, const std::function<void(const std::string&)>& look) {
  std::deque<std::string> texts{""};
  while (!texts.empty()) {
    const std::string text = texts.front();
    texts.pop_front();
    look(text);
    if (text.size() == longest) continue;
    for (const char letter : {'a', 'b', 'c'}) texts.push_back(text + letter);
  }
}

// Whether an end can be reached, by the fewest bytes.
bool reaches_an_end(Automaton& automaton, Automaton::State from) {
  std::deque<Automaton::State> pending{from};
  std::set<Automaton::State> seen{from, Automaton::kDead};
  while (!pending.empty() && seen.size() < 20'000) {
    const Automaton::State state = pending.front();
    pending.pop_front();
    if (automaton.may_end(state)) return true;
    for (const unsigned char byte : {'a', 'b', 'c'})
      if (const auto next = automaton.step(state, byte); seen.insert(next).second)
        pending.push_back(next);
  }
  return false;
}

TEST(Grammar, AllowsWhatAMatcherWithoutAutomataAllows) {
  int n_compiled = 0, n_allowed = 0, n_others = 0;
  for (std::uint32_t seed = 0; seed < 1500; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const RandomRules rules(seed);
    const auto grammar = Grammar::compile(rules.expressions, rules.start);
    if (!grammar.ok()) continue;
    ++n_compiled;
    Automaton automaton(*grammar);
    std::set<Automaton::State> looked_at{Automaton::kDead};
    for_all_texts(5, [&](const std::string& text) {
      Automaton::State state = automaton.start();
      for (const char letter : text)
        state = automaton.step(state, static_cast<unsigned char>(letter));
      const bool expected = Matcher(rules.expressions, text).matches(rules.start);
      ASSERT_EQ(automaton.may_end(state), expected) << text;
      ++(expected ? n_allowed : n_others);
      if (!looked_at.insert(state).second) return;
      ASSERT_TRUE(reaches_an_end(automaton, state)) << text;
      ASSERT_TRUE(expected || !automaton.is_complete(state)) << text;
    });
    if (testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GT(n_compiled, 400);
  EXPECT_GT(n_allowed, 10'000);
  EXPECT_GT(n_others, 10'000);
}

TEST(Grammar, AnAmbiguousNestingStaysSmall) {
  const auto grammar = Grammar::read(
      GrammarKind::kGbnf, "root ::= \"a\" root \"1\" | \"a\" root \"2\" | \"a\" root root | \"b\"");
  ASSERT_TRUE(grammar.ok());
  Automaton automaton(*grammar);
  Automaton::State state = automaton.start();
  for (int i = 0; i < 100; ++i) state = automaton.step(state, 'a');
  ASSERT_NE(state, Automaton::kDead);
  EXPECT_LT(automaton.size_bytes(), std::size_t{1} << 20);  // of 3 to the 100th ways
  EXPECT_TRUE(reaches_an_end(automaton, automaton.step(state, 'b')));
}

TEST(Grammar, DepthIsBoundedAndEveryPlaceStillReachesAnEnd) {
  // The second way takes three calls more once it is chosen.
  const auto grammar = Grammar::read(GrammarKind::kGbnf,
                                     "root ::= \"a\" root \"c\" | \"b\" x \"c\" | \"c\"\n"
                                     "x ::= \"a\" y \"b\"\ny ::= \"a\" z \"b\"\nz ::= \"a\"\n");
  ASSERT_TRUE(grammar.ok());
  Automaton automaton(*grammar);
  Automaton::State state = automaton.start();
  std::uint32_t depth = 0;
  std::uint32_t n_without_b = 0;
  for (; state != Automaton::kDead; state = automaton.step(state, 'a'), ++depth) {
    ASSERT_TRUE(reaches_an_end(automaton, state)) << depth;
    const Automaton::State other = automaton.step(state, 'b');
    if (other == Automaton::kDead)
      ++n_without_b;
    else
      ASSERT_TRUE(reaches_an_end(automaton, other)) << depth;
  }
  EXPECT_EQ(depth, Grammar::kMaxDepth + 1);
  EXPECT_EQ(n_without_b, 3u);
}

TEST(Grammar, AnyTextIsReadOrRefusedAndCanBeUsed) {
  constexpr std::string_view kSeeds[] = {
      "root ::= \"[\" (root (\",\" root)*)? \"]\" | [ab]{2,9}\nx ::= root? y\ny ::= \"\" | x x\n",
      "(ab|c*d?){1,9}[^x-z](\\d+\\w{0,7}|.*)$"};
  constexpr std::string_view kLetters = "()[]{}|*+?\\\"^$.,:=019abxyroot \n#-";
  std::mt19937 random(31);
  int n_read = 0;
  for (int round = 0; round < 6000; ++round) {
    const GrammarKind kind = round % 2 == 0 ? GrammarKind::kGbnf : GrammarKind::kRegex;
    std::string text(kSeeds[round % 2]);
    for (auto n = random() % 6; n > 0; --n) {
      const std::size_t place = random() % text.size();
      const char letter = kLetters[random() % kLetters.size()];
      if (random() % 3 == 0)
        text.insert(place, text.substr(random() % text.size(), 1 + random() % 12));
      else if (random() % 2 == 0)
        text[place] = letter;
      else
        text.erase(place, 1 + random() % 3);
      if (text.empty()) text = "a";
    }
    const auto grammar = Grammar::read(kind, text);
    if (!grammar.ok()) continue;
    ++n_read;
    Automaton automaton(*grammar);
    Automaton::State state = automaton.start();
    for (int i = 0; i < 40; ++i) {
      const auto next = automaton.step(state, static_cast<unsigned char>(kLetters[random() % 32]));
      if (next != Automaton::kDead) state = next;
    }
    ASSERT_NE(state, Automaton::kDead);
  }
  EXPECT_GT(n_read, 1000);
}

TEST(Grammar, AVeryLongGarbageIsRefusedSoon) {
  std::mt19937 random(37);
  for (const GrammarKind kind : {GrammarKind::kGbnf, GrammarKind::kRegex}) {
    for (int round = 0; round < 20; ++round) {
      constexpr std::string_view kLetters = "([{?*+|)]}\\\"ab01,: \n";
      std::string text = "root ::= ";
      while (text.size() < Grammar::kMaxTextBytes) text += kLetters[random() % kLetters.size()];
      EXPECT_NE(refusal_of(kind, text), "accepted");
    }
    EXPECT_NE(refusal_of(kind, std::string(60'000, '{')), "");
    EXPECT_NE(refusal_of(kind, "root ::= " + std::string(60'000, '[')), "accepted");
  }
  std::string names = "root ::= r0\n";  // a long way from rule to rule
  for (int i = 0; names.size() < 60'000; ++i)
    names += "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + "\n";
  EXPECT_THAT(gbnf_refusal(names), HasSubstr("is not defined"));
}

}  // namespace
}  // namespace foretoken
