#include "common/spec/draft_budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace foretoken {
namespace {

constexpr std::uint32_t kMost = 16;

Duration from_ms(double ms) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double, std::milli>(ms));
}

// A target and a draft of constant times: passes of 6 ms that rise by 2 % a row, waits of
// `fixed_ms` and `token_ms` for each token.
struct Pair {
  double fixed_ms = 0, token_ms = 0, acceptance = 0;
  std::uint32_t cap = kMost;
  double noise = 0.1;  // standard deviation of a wait, of it
  StepCost cost;
  DepthOutcomes outcomes;
  DraftBudget budget{outcomes};
  std::mt19937 draws{5};

  Pair(double fixed, double token, double stands)
      : fixed_ms(fixed), token_ms(token), acceptance(stands) {
    for (int i = 0; i < 8; ++i)
      for (std::uint32_t rows = 1; rows <= kMost + 1; ++rows)
        cost.observe(rows, from_ms(pass_ms(rows)));
  }
  static double pass_ms(double rows) { return 6 * (1 + 0.02 * (rows - 1)); }
  double rate(std::uint32_t k) const {
    double tokens = 1, survival = 1;
    for (std::uint32_t i = 0; i < k; ++i) tokens += survival *= acceptance;
    return tokens / (pass_ms(k + 1) + fixed_ms + token_ms * k);
  }
  std::uint32_t best_in_hindsight() const {
    std::uint32_t best = 1;
    for (std::uint32_t k = 2; k <= cap; ++k)
      if (rate(k) > rate(best)) best = k;
    return best;
  }
  void run(int n_rounds) {
    for (int i = 0; i < n_rounds; ++i) {
      const std::uint32_t n = budget.best(1, cap, cost);
      const double wait_ms =
          (fixed_ms + token_ms * n) * std::max(0.2, std::normal_distribution(1.0, noise)(draws));
      budget.observe_wait(from_ms(wait_ms), n);
      for (std::uint32_t depth = 0; depth < n; ++depth) {
        const bool stood = std::bernoulli_distribution(acceptance)(draws);
        outcomes.observe(depth, stood);
        if (!stood) break;
      }
    }
  }
  // Of tokens by time of the best number, over many rounds.
  double share_of_best() {
    double sum = 0;
    for (int i = 0; i < 400; ++i) {
      sum += rate(budget.best(1, cap, cost)) / 400;
      run(1);
    }
    return sum / rate(best_in_hindsight());
  }
};

TEST(DraftBudget, AsksForAllThatIsAllowedWhereNothingIsWaitedFor) {
  Pair pair(0, 0, 0.5);
  EXPECT_EQ(pair.budget.best(1, kMost, pair.cost), kMost) << "nothing is known yet";
  pair.run(200);
  for (int i = 0; i < 20; ++i, pair.run(1))
    EXPECT_EQ(pair.budget.best(1, kMost, pair.cost), kMost) << "fewer may be verified, at no cost";
}

TEST(DraftBudget, FindsTheBestNumberForADraftThatIsWaitedFor) {
  for (const std::uint32_t cap : {2u, 3u, 4u, 5u, 6u, 8u, 12u, kMost})
    for (const double acceptance : {0.3, 0.6, 0.8, 0.9, 0.95, 1.0})
      for (const double fixed : {0.0, 0.5, 5.0, 8.0})
        for (const double token : {0.12, 0.3, 1.2, 3.0}) {
          SCOPED_TRACE(testing::Message()
                       << cap << " " << acceptance << " " << fixed << " " << token);
          Pair pair(fixed, token, acceptance);
          pair.cap = cap;
          pair.run(600);
          EXPECT_GE(pair.share_of_best(), 0.94);
        }
}

TEST(DraftBudget, FollowsADraftThatGetsBetter) {
  Pair pair(0.2, 0.3, 0.2);
  pair.run(600);
  const std::uint32_t before = pair.budget.best(1, 3, pair.cost);
  pair.acceptance = 0.97;
  pair.run(600);
  EXPECT_LE(before, 2u);
  EXPECT_GE(pair.share_of_best(), 0.94);
}

TEST(DraftBudget, AsksADraftThatNeverAnswersForEverFewer) {
  const DepthOutcomes outcomes;
  DraftBudget mute(outcomes);
  const StepCost unknown;
  for (int i = 0; i < 32; ++i) mute.observe_owed();
  EXPECT_EQ(mute.best(1, kMost, unknown), kMost) << "its chain may be under way still";
  std::uint32_t before = kMost;
  for (int i = 0; i < 1000; ++i) {
    mute.observe_owed();
    const std::uint32_t n = mute.best(1, kMost, unknown);
    ASSERT_LE(n, before);
    ASSERT_GE(n, 1u);
    before = n;
  }
  EXPECT_EQ(before, 1u);
}

TEST(DraftBudget, AsksForAllAgainWithinAFewAnswers) {
  for (const bool waited_for : {true, false}) {
    const DepthOutcomes outcomes;
    DraftBudget budget(outcomes);
    const StepCost unknown;
    for (int i = 0; i < 1000; ++i) budget.observe_owed();
    for (int i = 0; i < 5; ++i)
      waited_for ? budget.observe_wait(from_ms(1), 1) : budget.observe_answer();
    EXPECT_EQ(budget.best(1, kMost, unknown), kMost) << waited_for;
  }
}

TEST(DraftBudget, AsksADraftWhoseChainsComeLateForAllWhileTheyAreUsed) {
  const DepthOutcomes outcomes;
  DraftBudget distant(outcomes);
  for (int i = 0; i < 1000; ++i) {
    distant.observe_owed();
    if (i % 20 == 19) distant.observe_answer();
    ASSERT_EQ(distant.best(1, kMost, StepCost()), kMost);
  }
}

TEST(DraftBudget, NeverExceedsTheLimitAndIsNeverNothing) {
  Pair pair(1, 3, 0.1);
  for (int i = 0; i < 200; ++i, pair.run(1))
    for (const std::uint32_t cap : {1u, 2u, 7u, 1000u}) {
      const std::uint32_t n = pair.budget.best(3, cap, pair.cost);
      EXPECT_GE(n, 1u);
      EXPECT_LE(n, std::min(cap, kMaxDraftTokens));
    }
}

}  // namespace
}  // namespace foretoken
