#include "common/engine/prompt_budget.h"

#include <gtest/gtest.h>

#include <chrono>

namespace foretoken {
namespace {

using std::chrono::milliseconds;

constexpr double kNoContext = 0;
constexpr Duration kMaxStep = milliseconds(20);
constexpr Duration kNothing{};
constexpr std::uint32_t kLeast = 8;

// Of which a prompt row is known to cost 1 ms: of 8 rows, cut by none.
PromptBudget with_rows_of_a_millisecond(double context = kNoContext) {
  PromptBudget budget(context, kMaxStep);
  budget.begin({.n_sequences = 2});
  budget.add(0, kLeast);
  budget.observe(milliseconds(kLeast));
  return budget;
}

TEST(PromptBudget, WithoutABoundTakesWhatIsThere) {
  PromptBudget budget(kNoContext, kNothing);
  budget.begin({.n_chains = 3, .plain = milliseconds(1), .n_sequences = 4});
  EXPECT_EQ(budget.rows_within(0, 5000), 5000u);
}

TEST(PromptBudget, BesideNoChainHasMaxStep) {
  PromptBudget budget = with_rows_of_a_millisecond();
  budget.begin({.n_sequences = 2});
  EXPECT_EQ(budget.rows_within(0, 500), 20u);
}

TEST(PromptBudget, AloneHasTwiceMaxStep) {
  PromptBudget budget = with_rows_of_a_millisecond();
  budget.begin({.n_sequences = 1});
  EXPECT_EQ(budget.rows_within(0, 500), 40u);
}

TEST(PromptBudget, BesideAChainHasTwiceWhatThatTakes) {
  PromptBudget budget = with_rows_of_a_millisecond();
  budget.begin({.n_chains = 1, .plain = milliseconds(6), .n_sequences = 2});
  EXPECT_EQ(budget.rows_within(0, 500), 12u);
}

TEST(PromptBudget, AlwaysTakesAFewRows) {
  PromptBudget budget = with_rows_of_a_millisecond();
  budget.begin({.n_chains = 1, .plain = milliseconds(1), .n_sequences = 2});
  EXPECT_EQ(budget.rows_within(0, 500), kLeast);
  EXPECT_EQ(budget.rows_within(0, 3), 3u);
}

TEST(PromptBudget, IsSharedByThePromptsOfAPass) {
  PromptBudget budget = with_rows_of_a_millisecond();
  budget.begin({.n_sequences = 3});
  budget.add(0, budget.rows_within(0, 12));
  EXPECT_EQ(budget.rows_within(0, 500), 8u);
  budget.add(0, 8);
  EXPECT_EQ(budget.rows_within(0, 500), 0u) << "the first had the few that are always taken";
}

TEST(PromptBudget, CountsTheAttentionToWhatIsCached) {
  PromptBudget budget = with_rows_of_a_millisecond(100);
  budget.begin({.n_sequences = 2});
  EXPECT_EQ(budget.attention_rows(), 0);
  const std::uint32_t near = budget.rows_within(0, 500);
  const std::uint32_t far = budget.rows_within(100, 500);
  EXPECT_GT(near, far);
  budget.add(100, 10);
  EXPECT_NEAR(budget.attention_rows(), 10 * (100 + 4.5) / 100, 1e-9);
}

// A pass that was to be full of prompt and was slower than planned says what a row costs; one whose
// rows were the limit says it too.
TEST(PromptBudget, LearnsFromASlowPass) {
  PromptBudget budget = with_rows_of_a_millisecond();
  budget.begin({.n_sequences = 2});
  budget.add(0, 20);
  budget.limit_to_added();
  budget.observe(milliseconds(40));
  budget.begin({.n_sequences = 2});
  EXPECT_EQ(budget.rows_within(0, 500), 10u);
}

}  // namespace
}  // namespace foretoken
