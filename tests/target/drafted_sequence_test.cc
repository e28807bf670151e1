#include "services/target/drafted_sequence.h"

#include <gtest/gtest.h>

#include <vector>

#include "common/spec/committed_tokens.h"

namespace foretoken {
namespace {

using AskFor = DraftedSequence::AskFor;

constexpr PrefixHash kPrefixRoot = 12345;

class DraftedSequenceTest : public testing::Test {
 protected:
  void commit(const std::vector<TokenId>& tail) {
    for (const TokenId token : tail) text.append(token);
    sequence.want(4);
  }
  std::vector<TokenId> next_tail() { return sequence.propose(Lease{1}, AskFor::kGuesses).tail; }

  CommittedTokens text{kPrefixRoot, {5, 6, 7}};
  SamplingParams params;
  DraftedSequence sequence{
      Opening{.seq = SeqId{1}, .text = text, .n_prompt = 3, .params = params, .prediction = {}}, 2};
};

TEST_F(DraftedSequenceTest, AttachTellsEverything) {
  commit({8});
  const wire::Attach attach = sequence.attach(Lease{7});
  EXPECT_EQ(attach.seq, SeqId{1});
  EXPECT_EQ(attach.lease, Lease{7});
  EXPECT_EQ(attach.tokens, (std::vector<TokenId>{5, 6, 7, 8}));
  EXPECT_EQ(attach.n_prompt, 3u);
  EXPECT_EQ(attach.root, kPrefixRoot);
  EXPECT_EQ(attach.prefix, text.prefix());
}

TEST_F(DraftedSequenceTest, ATailBeginsWhereTheDraftConfirmedAndNotWhereTheLastOneEnded) {
  sequence.attach(Lease{1});
  commit({8});
  EXPECT_EQ(next_tail(), (std::vector<TokenId>{8}));
  commit({9});
  EXPECT_EQ(next_tail(), (std::vector<TokenId>{8, 9}));
  sequence.confirm(4);
  EXPECT_EQ(next_tail(), (std::vector<TokenId>{9}));
  sequence.confirm(3);  // of an answer that was late
  EXPECT_EQ(next_tail(), (std::vector<TokenId>{9}));
  sequence.fall_back_to(2);
  EXPECT_EQ(next_tail(), (std::vector<TokenId>{7, 8, 9}));
}

TEST_F(DraftedSequenceTest, EachRecordHasAnEpochAndAPausedDraftIsAskedForNothing) {
  sequence.attach(Lease{1});
  commit({8});
  const wire::ProposeRecord first = sequence.propose(Lease{1}, AskFor::kGuesses);
  const wire::ProposeRecord second = sequence.propose(Lease{1}, AskFor::kNothing);
  EXPECT_EQ(first.epoch, Epoch{1});
  EXPECT_EQ(first.budget, 4u);
  EXPECT_EQ(second.epoch, Epoch{2});
  EXPECT_EQ(second.epoch, sequence.epoch());
  EXPECT_EQ(second.budget, 0u);
  EXPECT_EQ(second.tail, first.tail) << "it is kept current";
}

TEST_F(DraftedSequenceTest, EndsWithWhatNoRecordHasTold) {
  sequence.attach(Lease{1});
  commit({8, 9});
  sequence.confirm(4);
  const wire::CloseSequence close = sequence.close(Lease{1});
  EXPECT_EQ(close.from, 4u);
  EXPECT_EQ(close.tail, (std::vector<TokenId>{9}));
  EXPECT_EQ(close.lease, Lease{1});
}

TEST_F(DraftedSequenceTest, BelievesADraftThatNamesABeginningOfIt) {
  EXPECT_TRUE(sequence.begins_with(2, text.prefix(2)));
  EXPECT_TRUE(sequence.begins_with(3, text.prefix(3)));
  EXPECT_FALSE(sequence.begins_with(2, text.prefix(3))) << "other tokens";
  EXPECT_FALSE(sequence.begins_with(4, text.prefix(3))) << "more than there are";
  EXPECT_FALSE(sequence.begins_with(0, kPrefixRoot)) << "nothing at all";
}

}  // namespace
}  // namespace foretoken
