#include "tests/engine/leased_sequence.h"

#include <gtest/gtest.h>

#include <vector>

namespace foretoken {
namespace {

using test::guess;
using test::leased_sequence;

TEST(LeasedSequence, GuessesWhatIsAskedForAndNoMore) {
  const auto sequence = leased_sequence({.budget = 3});
  EXPECT_EQ(sequence->n_wanted(), 3u);
  guess(*sequence, {10, 11});
  EXPECT_TRUE(sequence->can_grow());
  EXPECT_EQ(sequence->n_wanted(), 1u);
  guess(*sequence, {12});
  EXPECT_FALSE(sequence->can_grow());
  EXPECT_EQ(sequence->n_wanted(), 0u);
}

TEST(LeasedSequence, GoesOnOnlyOnceItHasAnswered) {
  const auto sequence = leased_sequence({.budget = 3, .run_ahead = 2});
  EXPECT_EQ(sequence->chain_limit(), 3u);
  EXPECT_FALSE(sequence->is_ahead());
  sequence->owes_answer = false;
  EXPECT_EQ(sequence->chain_limit(), 5u);
  EXPECT_TRUE(sequence->is_ahead());
}

TEST(LeasedSequence, GoesOnNoFurtherThanAnyChain) {
  const auto sequence = leased_sequence({.budget = 3, .run_ahead = 20});
  sequence->owes_answer = false;
  EXPECT_EQ(sequence->chain_limit(), 8u);
}

TEST(LeasedSequence, OfWhichNothingIsWantedDoesNotGoOn) {
  const auto sequence = leased_sequence({.budget = 0, .run_ahead = 2});
  EXPECT_EQ(sequence->chain_limit(), 0u);
  EXPECT_FALSE(sequence->is_ahead());
  EXPECT_FALSE(sequence->may_branch());
}

TEST(LeasedSequence, EndsAtTheLongestText) {
  const auto sequence = leased_sequence({.limits = {.max_ahead = 8, .max_len = 7}, .budget = 6});
  EXPECT_EQ(sequence->n_wanted(), 2u);
  guess(*sequence, {10, 11});
  EXPECT_FALSE(sequence->can_grow());
}

TEST(LeasedSequence, EndsAfterAGuessedEndToken) {
  const auto sequence = leased_sequence({.end_tokens = {7}, .budget = 4});
  guess(*sequence, {10});
  EXPECT_TRUE(sequence->can_grow());
  guess(*sequence, {7});
  EXPECT_FALSE(sequence->can_grow());
}

// The prompt may end with a token that ends an answer.
TEST(LeasedSequence, AnEndTokenOfThePromptEndsNothing) {
  const auto sequence = leased_sequence({.prompt = {3, 7}, .end_tokens = {7}, .budget = 4});
  EXPECT_TRUE(sequence->can_grow());
}

TEST(LeasedSequence, StandsStillWhileNoTokenMayFollow) {
  const auto sequence = leased_sequence({.budget = 4});
  sequence->is_stuck = true;
  EXPECT_FALSE(sequence->can_grow());
}

class LeasedSequenceRows : public ::testing::Test {
 protected:
  static std::vector<TokenId> prompt(std::size_t n) { return std::vector<TokenId>(n, 5); }
  void cache(LeasedSequence& sequence, std::uint32_t n_tokens) {
    kv_.open(sequence.cache_name, {}, 0).value();
    sequence.has_cache = true;
    sequence.is_fresh = false;
    kv_.reserve(sequence.cache_name, n_tokens).value().commit(n_tokens, sequence.chain.text());
  }
  KvCache kv_{{.n_blocks = 40, .block_tokens = 4}};
};

TEST_F(LeasedSequenceRows, ArePendingAsFarAsNothingIsCached) {
  const auto sequence = leased_sequence({.prompt = prompt(9), .budget = 4});
  EXPECT_EQ(sequence->n_pending(kv_), 9u);
  cache(*sequence, 6);
  EXPECT_EQ(sequence->n_pending(kv_), 3u);
  guess(*sequence, {10});
  EXPECT_EQ(sequence->n_pending(kv_), 4u);
}

// Of which no guesses are wanted: only a prompt of some size is worth rows.
TEST_F(LeasedSequenceRows, OfAnIdleSequenceWaitUntilTheyFillAPass) {
  EXPECT_FALSE(leased_sequence({.prompt = prompt(32)})->wants_rows(kv_));
  const auto longer = leased_sequence({.prompt = prompt(33)});
  EXPECT_TRUE(longer->wants_rows(kv_));
  cache(*longer, 1);
  EXPECT_FALSE(longer->wants_rows(kv_));
}

TEST_F(LeasedSequenceRows, OfAnIdleSequenceThatLostItsBlocksAreNotWanted) {
  const auto sequence = leased_sequence({.prompt = prompt(60)});
  sequence->is_fresh = false;
  EXPECT_FALSE(sequence->wants_rows(kv_));
}

TEST_F(LeasedSequenceRows, AreWantedForEachGuess) {
  const auto sequence = leased_sequence({.budget = 1});
  EXPECT_TRUE(sequence->wants_rows(kv_));
  guess(*sequence, {10});
  EXPECT_FALSE(sequence->wants_rows(kv_));
}

}  // namespace
}  // namespace foretoken
