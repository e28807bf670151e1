#include "services/target/drafted_sequence.h"

#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "common/spec/prefix_hash.h"

namespace foretoken {
namespace {

using Asking = DraftedSequence::Asking;

constexpr PrefixHash kPrefixRoot = 12345;

class DraftedSequenceTest : public testing::Test {
 protected:
  // The engine committed `tail`, which begins at `from`.
  void commit(Position from, const std::vector<TokenId>& tail) {
    tokens.resize(from);
    tokens.insert(tokens.end(), tail.begin(), tail.end());
    sequence.extend({.from = from, .tail = tail, .prefix = hash_of(tokens.size()), .budget = 4});
  }
  PrefixHash hash_of(std::size_t n) const {
    return prefix_hash_extend(kPrefixRoot, std::span(tokens).first(n));
  }
  std::vector<TokenId> next_tail() { return sequence.propose(Lease{1}, Asking::kBudget).tail; }

  std::vector<TokenId> tokens{5, 6, 7};
  SamplingParams params;
  DraftedSequence sequence{
      Opening{.seq = SeqId{1}, .prompt = tokens, .params = params, .prediction = {}}, kPrefixRoot,
      2};
};

TEST_F(DraftedSequenceTest, AttachTellsEverything) {
  commit(3, {8});
  const wire::Attach attach = sequence.attach(Lease{7});
  EXPECT_EQ(attach.seq, SeqId{1});
  EXPECT_EQ(attach.lease, Lease{7});
  EXPECT_EQ(attach.tokens, tokens);
  EXPECT_EQ(attach.n_prompt, 3u);
  EXPECT_EQ(attach.root, kPrefixRoot);
  EXPECT_EQ(attach.prefix, hash_of(4));
}

TEST_F(DraftedSequenceTest, ATailBeginsWhereTheDraftConfirmedAndNotWhereTheLastOneEnded) {
  sequence.attach(Lease{1});
  commit(3, {8});
  EXPECT_EQ(next_tail(), (std::vector<TokenId>{8}));
  commit(4, {9});
  EXPECT_EQ(next_tail(), (std::vector<TokenId>{8, 9}));
  sequence.confirm(4);
  EXPECT_EQ(next_tail(), (std::vector<TokenId>{9}));
  sequence.confirm(3);  // of an answer that was late
  EXPECT_EQ(next_tail(), (std::vector<TokenId>{9}));
  sequence.fall_back_to(2);
  EXPECT_EQ(next_tail(), (std::vector<TokenId>{7, 8, 9}));
}

TEST_F(DraftedSequenceTest, TakesOnlyTheNewPartOfATailThatBeginsEarlier) {
  sequence.attach(Lease{1});
  commit(3, {8, 9});
  commit(3, {8, 9, 10});
  commit(4, {9, 10});
  EXPECT_EQ(sequence.n_tokens(), 6u);
  EXPECT_EQ(next_tail(), (std::vector<TokenId>{8, 9, 10}));
}

TEST_F(DraftedSequenceTest, EachRecordHasAnEpochAndAPausedDraftIsAskedForNothing) {
  sequence.attach(Lease{1});
  commit(3, {8});
  const wire::ProposeRecord first = sequence.propose(Lease{1}, Asking::kBudget);
  const wire::ProposeRecord second = sequence.propose(Lease{1}, Asking::kNothing);
  EXPECT_EQ(first.epoch, Epoch{1});
  EXPECT_EQ(first.budget, 4u);
  EXPECT_EQ(second.epoch, Epoch{2});
  EXPECT_EQ(second.epoch, sequence.epoch());
  EXPECT_EQ(second.budget, 0u);
  EXPECT_EQ(second.tail, first.tail) << "it is kept current";
}

TEST_F(DraftedSequenceTest, BelievesADraftThatNamesABeginningOfIt) {
  EXPECT_TRUE(sequence.begins_with(2, hash_of(2)));
  EXPECT_TRUE(sequence.begins_with(3, hash_of(3)));
  EXPECT_FALSE(sequence.begins_with(2, hash_of(3))) << "other tokens";
  EXPECT_FALSE(sequence.begins_with(4, hash_of(3))) << "more than there are";
  EXPECT_FALSE(sequence.begins_with(0, kPrefixRoot)) << "nothing at all";
}

}  // namespace
}  // namespace foretoken
