#include "common/spec/finish.h"

#include <gmock/gmock.h>

#include <optional>

namespace foretoken {
namespace {

constexpr TokenId kEos = 2;
const std::vector<TokenId> kEosIds{kEos};

SamplingParams params(std::uint32_t max_tokens) {
  SamplingParams out;
  out.max_tokens = max_tokens;
  out.stop_token_ids = {50, 40};
  return out;
}

TEST(FinishRules, EndAtTheModelsEndTokenAndAtStopTokens) {
  for (const TokenId ending : {kEos, 40, 50}) {
    FinishRules rules(params(10), kEosIds, 5, 100);
    EXPECT_EQ(rules.on_token(7), std::nullopt);
    EXPECT_EQ(rules.on_token(ending), FinishReason::kStop) << ending;
    EXPECT_EQ(rules.n_output(), 2u);
  }
}

TEST(FinishRules, IgnoreEosKeepsTheRequestsOwnStopTokens) {
  SamplingParams ignoring = params(10);
  ignoring.ignore_eos = true;
  FinishRules rules(ignoring, kEosIds, 5, 100);
  EXPECT_EQ(rules.on_token(kEos), std::nullopt);
  EXPECT_EQ(rules.on_token(40), FinishReason::kStop);
}

TEST(FinishRules, TheEndOfAGrammarIsAStopWithoutAStopToken) {
  FinishRules by_grammar(params(2), kEosIds, 5, 100);
  EXPECT_EQ(by_grammar.on_token(7, false), std::nullopt);
  EXPECT_EQ(by_grammar.on_token(7, true), FinishReason::kStop);  // before max_tokens
  EXPECT_FALSE(by_grammar.ended_by_token());
  FinishRules by_token(params(2), kEosIds, 5, 100);
  EXPECT_EQ(by_token.on_token(kEos, true), FinishReason::kStop);
  EXPECT_TRUE(by_token.ended_by_token());
}

TEST(FinishRules, DeliverExactlyMaxTokens) {
  FinishRules rules(params(3), kEosIds, 5, 100);
  EXPECT_EQ(rules.n_remaining(), 3u);
  EXPECT_EQ(rules.on_token(7), std::nullopt);
  EXPECT_EQ(rules.on_token(7), std::nullopt);
  EXPECT_EQ(rules.n_remaining(), 1u);
  EXPECT_EQ(rules.on_token(7), FinishReason::kLength);
  EXPECT_EQ(rules.n_remaining(), 0u);
}

TEST(FinishRules, AStopOnTheLastAllowedTokenIsAStop) {
  FinishRules rules(params(1), kEosIds, 5, 100);
  EXPECT_EQ(rules.on_token(kEos), FinishReason::kStop);
}

TEST(FinishRules, TheModelsLengthCountsThePrompt) {
  FinishRules rules(params(1000), kEosIds, 98, 100);
  EXPECT_EQ(rules.on_token(7), std::nullopt);
  EXPECT_EQ(rules.on_token(7), FinishReason::kLength);
}

TEST(FinishRulesDeathTest, NothingIsCommittedAfterTheFinish) {
  FinishRules rules(params(1), kEosIds, 5, 100);
  EXPECT_EQ(rules.on_token(7), FinishReason::kLength);
  EXPECT_DEATH(rules.on_token(7), "after the finish");
}

}  // namespace
}  // namespace foretoken
