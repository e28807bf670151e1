#include "services/target/target_answer.h"

#include <gmock/gmock.h>

#include <chrono>
#include <memory>
#include <vector>

namespace foretoken {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

// Of the prompt 1 2 3, with so many tokens of answer, each with a log-probability.
TargetAnswer answer_of(std::uint32_t n_output) {
  std::vector<TokenId> tokens{1, 2, 3};
  for (std::uint32_t i = 0; i < n_output; ++i) tokens.push_back(static_cast<TokenId>(10 + i));
  TargetAnswer answer{.seq = SeqId{1}, .n_prompt = 3, .with_logprobs = true};
  answer.text = std::make_shared<CommittedTokens>(PrefixHash{42}, std::move(tokens));
  answer.guessed.resize(n_output, 1);
  answer.logprobs.resize(n_output);
  return answer;
}

wire::Open open_of(std::vector<TokenId> tokens) {
  wire::Open open;
  open.tokens = std::move(tokens);
  open.n_prompt = 3;
  return open;
}

TEST(TargetAnswer, IsThatOfAnOpenWithItsPromptAndTheBeginningOfItsText) {
  const TargetAnswer answer = answer_of(4);
  EXPECT_EQ(answer.what_differs(open_of({1, 2, 3})), "");
  EXPECT_EQ(answer.what_differs(open_of({1, 2, 3, 10, 11})), "");
  EXPECT_EQ(answer.what_differs(open_of({1, 2, 4})), "another prompt");
  EXPECT_EQ(answer.what_differs(open_of({1, 2, 3, 10, 12})), "another answer");
}

TEST(TargetAnswer, IsNotThatOfAnOpenThatAsksOtherwise) {
  const TargetAnswer answer = answer_of(4);
  wire::Open open = open_of({1, 2, 3});
  open.params.seed = answer.params.seed + 1;
  EXPECT_EQ(answer.what_differs(open), "other sampling parameters");
  open = open_of({1, 2, 3});
  open.end_tokens = {9};
  EXPECT_EQ(answer.what_differs(open), "other end tokens");
}

TEST(TargetAnswer, HasNoLogProbabilitiesOfTokensThatItWentOnFrom) {
  TargetAnswer answer = answer_of(4);
  answer.first_logprob = 2;
  EXPECT_FALSE(answer.has_logprobs_for(open_of({1, 2, 3})));
  EXPECT_FALSE(answer.has_logprobs_for(open_of({1, 2, 3, 10})));
  EXPECT_TRUE(answer.has_logprobs_for(open_of({1, 2, 3, 10, 11})));
  answer.with_logprobs = false;
  EXPECT_TRUE(answer.has_logprobs_for(open_of({1, 2, 3})));
  answer.first_prompt_logprob = 2;
  wire::Open of_prompt = open_of({1, 2, 3});
  EXPECT_TRUE(answer.has_logprobs_for(of_prompt));
  of_prompt.params.n_prompt_logprobs = 0;
  EXPECT_FALSE(answer.has_logprobs_for(of_prompt));
  of_prompt.prompt_logprobs_from = 2;
  EXPECT_TRUE(answer.has_logprobs_for(of_prompt));
}

TEST(TargetAnswer, IsSentInPartsThatAMessageHolds) {
  const TargetAnswer answer = answer_of(600);
  const auto messages = answer.messages_from(10);
  std::vector<std::size_t> sizes;
  Position next = 13;
  for (const wire::Tokens& message : messages) {
    EXPECT_EQ(message.position, next);
    EXPECT_EQ(message.ids.front(), static_cast<TokenId>(10 + next - 3));
    EXPECT_EQ(message.accepted.size(), message.ids.size());
    EXPECT_EQ(message.logprobs.size(), message.ids.size());
    sizes.push_back(message.ids.size());
    next += static_cast<Position>(message.ids.size());
  }
  EXPECT_THAT(sizes, ElementsAre(256, 256, 78));
}

TEST(TargetAnswer, IsSentWithoutLogProbabilitiesWhereNoneAreAskedFor) {
  TargetAnswer answer = answer_of(4);
  answer.with_logprobs = false;
  const auto messages = answer.messages_from(1);
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_THAT(messages[0].ids, ElementsAre(11, 12, 13));
  EXPECT_THAT(messages[0].logprobs, IsEmpty());
  EXPECT_THAT(answer.messages_from(4), IsEmpty());
}

TEST(TargetAnswer, SendsOfItsPromptWhatItHas) {
  TargetAnswer answer = answer_of(0);
  answer.first_prompt_logprob = 1;
  answer.prompt_logprobs.resize(2);
  const auto all = answer.prompt_messages_from(0);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].position, 1u);
  EXPECT_THAT(all[0].ids, ElementsAre(2, 3));
  const auto last = answer.prompt_messages_from(2);
  ASSERT_EQ(last.size(), 1u);
  EXPECT_THAT(last[0].ids, ElementsAre(3));
  EXPECT_THAT(answer.prompt_messages_from(3), IsEmpty());
}

// The tokens are the engine's; that they are a pass's is counted here.
TEST(TargetAnswer, CountsTokensAfterThoseOfItsFirstPass) {
  TargetAnswer answer = answer_of(0);
  const TimePoint first = TimePoint{} + seconds(1000);
  answer.add({.position = 3, .ids = {10, 11}, .accepted = {1}}, first);
  EXPECT_EQ(answer.n_later, 0u);
  EXPECT_THAT(answer.guessed, ElementsAre(1, 0)) << "the last of a pass is the target's own";
  answer.add({.position = 5, .ids = {12}}, first + seconds(1));
  EXPECT_EQ(answer.n_later, 1u);
  EXPECT_EQ(answer.first_token, first);
  EXPECT_EQ(answer.last_token, first + seconds(1));
  EXPECT_THAT(answer.guessed, ElementsAre(1, 0, 0));
}

}  // namespace
}  // namespace foretoken
