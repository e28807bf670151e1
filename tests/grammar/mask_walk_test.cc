// Masks over vocabularies: against each token alone, within counted and uncounted texts, and where
// a grammar would make one take too long. The vocabulary's tree itself.
#include "common/grammar/mask_walk.h"

#include <gmock/gmock.h>

#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tests/grammar/demo_vocabulary.h"

namespace foretoken {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string_view> views_of(const std::vector<std::string>& texts) {
  return {texts.begin(), texts.end()};
}

std::vector<TokenId> walked(Automaton& automaton, Automaton::State state, const TokenTrie& trie) {
  std::vector<std::uint32_t> words((trie.n_ids() + 31) / 32);
  allow_tokens(automaton, state, trie, words);
  std::vector<TokenId> found;
  for (std::size_t id = 0; id < words.size() * 32; ++id)
    if (words[id / 32] >> (id % 32) & 1) found.push_back(static_cast<TokenId>(id));
  return found;
}

Automaton::State step_all(Automaton& automaton, Automaton::State state, std::string_view text) {
  for (const char byte : text) state = automaton.step(state, static_cast<unsigned char>(byte));
  return state;
}

std::vector<TokenId> each_alone(Automaton& automaton,
                                Automaton::State state,
                                const TokenTrie& trie) {
  std::vector<TokenId> found;
  for (std::size_t id = 0; id < trie.n_ids(); ++id) {
    const auto token = static_cast<TokenId>(id);
    if (trie.bytes(token).empty()) continue;
    if (step_all(automaton, state, trie.bytes(token)) != Automaton::kDead) found.push_back(token);
  }
  return found;
}

TEST(TokenTrie, HasEachTokenAtTheEndOfItsBytes) {
  const std::vector<std::string> texts{"b", "", "ab", "a", "abc", "ab", "\xFF", "b"};
  const TokenTrie trie(views_of(texts));
  ASSERT_EQ(trie.n_nodes(), 6u);  // the root, a, ab, abc, b, FF
  EXPECT_THAT(trie.tokens_at(0), IsEmpty());
  EXPECT_THAT(trie.tokens_at(1), ElementsAre(3));
  EXPECT_THAT(trie.tokens_at(2), ElementsAre(2, 5));
  EXPECT_THAT(trie.tokens_at(4), ElementsAre(0, 7));
  EXPECT_THAT(trie.tokens_at_and_below(1), ElementsAre(3, 2, 5, 4));
  EXPECT_THAT(trie.tokens_at_and_below(0), ElementsAre(3, 2, 5, 4, 0, 7, 6));
  EXPECT_EQ(trie[1].end, 4u);
  EXPECT_EQ(trie[1].height, 2u);
  EXPECT_EQ(trie.max_depth(), 3u);
  EXPECT_EQ(trie.below(trie[1]), ByteSet().set('b').set('c'));
  EXPECT_EQ(trie.below(trie[0]), ByteSet().set('a').set('b').set('c').set(0xFF));
  EXPECT_TRUE(trie.below(trie[5]).none());
  EXPECT_EQ(trie.bytes(-1), "");
  EXPECT_EQ(trie.bytes(8), "");
}

TEST(TokenTrie, MayBeEmpty) {
  const TokenTrie none(std::span<const std::string_view>{});
  const TokenTrie only_special(std::vector<std::string_view>{"", ""});
  for (const TokenTrie* trie : {&none, &only_special}) {
    EXPECT_EQ(trie->n_nodes(), 1u);
    EXPECT_THAT(trie->tokens_at_and_below(0), IsEmpty());
    Automaton automaton(value_or_throw(Grammar::read(GrammarKind::kRegex, "a+")));
    EXPECT_THAT(walked(automaton, automaton.start(), *trie), IsEmpty());
  }
}

TEST(TokenTrie, LeavesOutTokensBeyondTheLimit) {
  const std::vector<std::string> texts{std::string(TokenTrie::kMaxTokenBytes, 'a'),
                                       std::string(TokenTrie::kMaxTokenBytes + 1, 'a'), "aa"};
  const TokenTrie trie(views_of(texts));
  Automaton automaton(value_or_throw(Grammar::read(GrammarKind::kRegex, "a+")));
  EXPECT_THAT(walked(automaton, automaton.start(), trie), ElementsAre(0, 2));
}

// Long runs of bytes are taken as a whole; where a count ends, a quote comes or a character of
// several bytes is cut, they must not be.
TEST(MaskWalk, AllowsTheTokensOfARealVocabularyThatMayFollow) {
  const std::vector<std::string> texts = test::texts_of(*test::demo_tokenizer());
  const TokenTrie trie(views_of(texts));
  std::size_t n_allowed = 0, n_others = 0;
  for (const std::string_view pattern :
       {"\"[^\"\\\\\\x00-\\x1f]*\"", "\"[^\"\\\\]{0,40}\"", "\"[ -~]{3,7}\"", ".*", "(.|\\n){0,3}",
        "[^a-m]*:\\d{1,3}", "([ -~]{5}\\n)*"}) {
    Automaton automaton(value_or_throw(Grammar::read(GrammarKind::kRegex, pattern)));
    for (const std::string_view before :
         {"", "\"", "\"a", "\"ab \xC3", "x\xE2\x82", "xyzx ", "xyz\n", "\"so long a text that",
          "\"so long a text that the count of it ends",
          "\"so long a text that the count of it en"}) {
      const Automaton::State state = step_all(automaton, automaton.start(), before);
      const auto expected = each_alone(automaton, state, trie);
      ASSERT_EQ(walked(automaton, state, trie), expected) << pattern << " " << before;
      n_allowed += expected.size();
      n_others += texts.size() - expected.size();
    }
  }
  EXPECT_GT(n_allowed, 10 * texts.size());
  EXPECT_GT(n_others, 10 * texts.size());
}

std::vector<std::string> many_words() {
  std::mt19937 random(41);
  std::vector<std::string> words(40'000);
  for (std::string& word : words)
    for (int i = 0; i < 7; ++i) word += static_cast<char>('a' + random() % 26);
  return words;
}

// Each text leads to a state of its own, with many nodes.
std::string wide_pattern() {
  std::string pattern = "x";
  for (char letter = 'a'; letter <= 'z'; ++letter)
    for (const char end : {'0', '1', '2', '3'})
      pattern += std::string("|[a-z]*") + letter + "[a-z]{18}" + end;
  return pattern;
}

TEST(MaskWalk, EndsAndIsTheSameWhereAMaskWouldTakeTooLong) {
  const std::vector<std::string> texts = many_words();
  const TokenTrie trie(views_of(texts));
  const auto grammar = value_or_throw(Grammar::read(GrammarKind::kRegex, wide_pattern()));
  Automaton fresh(grammar);
  const auto mask = walked(fresh, step_all(fresh, fresh.start(), "abc"), trie);
  EXPECT_GT(mask.size(), 100u);
  EXPECT_LT(mask.size(), texts.size());
  Automaton used(grammar);
  for (const std::string_view other : {"", "zzz", "abcdefgh", "a"})
    walked(used, step_all(used, used.start(), other), trie);
  EXPECT_EQ(walked(used, step_all(used, used.start(), "abc"), trie), mask);
  EXPECT_EQ(walked(fresh, step_all(fresh, fresh.start(), "abc"), trie), mask);
}

TEST(MaskWalk, NothingFollowsADeadState) {
  const TokenTrie trie(std::vector<std::string_view>{"a"});
  Automaton automaton(value_or_throw(Grammar::read(GrammarKind::kRegex, "a+")));
  EXPECT_THAT(walked(automaton, Automaton::kDead, trie), IsEmpty());
}

}  // namespace
}  // namespace foretoken
