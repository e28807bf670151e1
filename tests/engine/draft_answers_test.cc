#include "common/engine/draft_answers.h"

#include <gmock/gmock.h>

#include <chrono>
#include <vector>

#include "common/spec/proposal.h"
#include "tests/engine/leased_sequence.h"

namespace foretoken {
namespace {

using test::guess;
using test::leased_sequence;
using testing::ElementsAre;
using testing::IsEmpty;

const TimePoint kAsked{std::chrono::hours(1)};

TEST(DraftAnswers, AnAnswerIsSentOnceItIsComplete) {
  const auto sequence = leased_sequence({.budget = 2});
  sequence->epoch = Epoch{7};
  sequence->asked = kAsked;
  std::vector<ReadyProposal> sent;
  guess(*sequence, {10});
  answer_if_complete(*sequence, sent);
  EXPECT_THAT(sent, IsEmpty());
  guess(*sequence, {11});
  answer_if_complete(*sequence, sent);
  answer_if_complete(*sequence, sent);
  ASSERT_EQ(sent.size(), 1u) << "an answer, and once";
  EXPECT_EQ(sent[0].asked, kAsked);
  EXPECT_EQ(sent[0].to, sequence->key.target);
  const wire::ProposalRecord& record = sent[0].record;
  EXPECT_EQ(record.epoch, Epoch{7});
  EXPECT_EQ(record.base, 5u);
  EXPECT_THAT(record.tokens, ElementsAre(10, 11));
  EXPECT_THAT(record.confidence, ElementsAre(200, 200));
  EXPECT_FALSE(record.is_partial);
}

TEST(DraftAnswers, WhereNoGuessCanBeMadeTheAnswerIsEmpty) {
  const auto sequence = leased_sequence({.budget = 2});
  sequence->is_stuck = true;
  std::vector<ReadyProposal> sent;
  answer_if_complete(*sequence, sent);
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_THAT(sent[0].record.tokens, IsEmpty());
}

TEST(DraftAnswers, AnOvertakenRecordHasItsAnswerUnderItsOwnEpoch) {
  const auto sequence = leased_sequence({.budget = 4});
  guess(*sequence, {10});
  sequence->epoch = Epoch{8};
  sequence->overtaken = Epoch{7};
  sequence->overtaken_asked = kAsked;
  std::vector<ReadyProposal> sent;
  answer_overtaken(*sequence, sent);
  answer_overtaken(*sequence, sent);
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].record.epoch, Epoch{7});
  EXPECT_EQ(sent[0].asked, kAsked);
  EXPECT_TRUE(sequence->owes_answer) << "the later record's";
}

TEST(DraftAnswers, ATargetThatDoesNotListenAllTheTimeIsSentNoNews) {
  const auto sequence = leased_sequence({.budget = 4});
  guess(*sequence, {10});
  std::vector<ReadyProposal> sent;
  send_news(*sequence, sent);
  EXPECT_THAT(sent, IsEmpty());
}

TEST(DraftAnswers, NewsOfAnAnswerThatIsOwedAreAPart) {
  const auto sequence = leased_sequence({.budget = 4, .run_ahead = 2});
  guess(*sequence, {10});
  std::vector<ReadyProposal> sent;
  send_news(*sequence, sent);
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_TRUE(sent[0].record.is_partial);
  EXPECT_EQ(sent[0].asked, TimePoint{}) << "this is no answer to a question";
  send_news(*sequence, sent);
  EXPECT_EQ(sent.size(), 1u) << "the same is no news";
}

TEST(DraftAnswers, NewsBeyondAnAnswerAreWhole) {
  const auto sequence = leased_sequence({.budget = 1, .run_ahead = 2});
  sequence->owes_answer = false;
  guess(*sequence, {10, 11});
  std::vector<ReadyProposal> sent;
  send_news(*sequence, sent);
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_FALSE(sent[0].record.is_partial);
}

// Of the chain 10 11 12: 21 22 in place of 11, and 30 in place of 10.
TEST(DraftAnswers, BranchesFollowTheChainAndNameWhereTheyLeaveIt) {
  const auto sequence = leased_sequence({.budget = 3, .run_ahead = 2});
  guess(*sequence, {10, 11, 12});
  sequence->branches = {
      {.position = 6, .tokens = {21, 22}, .guesses = {{.confidence = 1}, {.confidence = 2}}},
      {.position = 5, .tokens = {30}, .guesses = {{.confidence = 3}}}};
  for (DraftBranch& branch : sequence->branches) branch.has_grown = true;
  std::vector<ReadyProposal> sent;
  answer_if_complete(*sequence, sent);
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_THAT(sent[0].record.tokens, ElementsAre(10, 11, 12, 21, 22, 30));
  EXPECT_THAT(sent[0].record.parents, ElementsAre(kParentIsBase, 0, 1, 0, 3, kParentIsBase));
  EXPECT_THAT(sent[0].record.confidence, ElementsAre(200, 200, 200, 1, 2, 3));
  send_news(*sequence, sent);
  EXPECT_EQ(sent.size(), 1u) << "branches that did not grow since are no news";
  sequence->branches.back().has_grown = true;
  send_news(*sequence, sent);
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_THAT(sent[1].record.tokens, ElementsAre(10, 11, 12, 30));
}

}  // namespace
}  // namespace foretoken
