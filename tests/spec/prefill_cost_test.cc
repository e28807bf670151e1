#include "common/spec/prefill_cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace foretoken {
namespace {

using std::chrono::milliseconds;

TEST(PrefillRates, RowsOfAWorkAreThatManyAgain) {
  for (const double context : {0.0, 100.0, 1500.0})
    for (const std::uint32_t n_cached : {0u, 1u, 700u, 8000u})
      for (const std::uint32_t n : {1u, 7u, 8u, 100u, 256u}) {
        const PrefillRates rates{.context = context};
        EXPECT_EQ(rates.rows_within(rates.work(n_cached, n), n_cached), n);
        EXPECT_LT(rates.rows_within(rates.work(n_cached, n) - 0.01, n_cached), n);
      }
  EXPECT_EQ(PrefillRates{}.rows_within(0, 5), 0u);
}

TEST(PrefillRates, TheWorkOfAChunkIsThatOfItsRows) {
  const PrefillRates rates{.context = 300};
  double sum = 0;
  for (std::uint32_t row = 0; row < 50; ++row) sum += rates.row_work(1000 + row);
  EXPECT_NEAR(rates.work(1000, 50), sum, 1e-9);
}

// A model in simulated time, read in chunks as the cost says.
struct Reading {
  double plain_s = 0.07;   // a pass without prompts
  double row_s = 0.0015;   // each row beyond
  double context = 1500;   // at which attention doubles that
  double slow_from = 1e9;  // tokens from which everything takes `slowdown` times as long
  double slowdown = 1;
  double jitter = 0;  // each pass up to so much longer

  static constexpr std::uint32_t kPrompt = 8000;
  static constexpr double kPass = 0.25;

  struct Outcome {
    int n_passes = 0;
    int n_long = 0;  // beyond a fifth more than planned
    double longest = 0;
    double seconds = 0;
  };
  Outcome read(PrefillCost& cost) const {
    Outcome outcome;
    std::mt19937 random(3);
    const double planned = std::max(kPass, 2 * plain_s);
    const auto planned_time =
        std::chrono::duration_cast<Duration>(std::chrono::duration<double>(planned));
    for (std::uint32_t at = 0; at < kPrompt; ++outcome.n_passes) {
      const double most = cost.rates().work_within(planned_time);
      const auto least = static_cast<std::uint32_t>(kLeastPrefillRows);
      const std::uint32_t n =
          std::min({std::max(least, cost.rates().rows_within(most, at)), kPrompt - at, 256u});
      double took = plain_s + row_s * PrefillRates{.context = context}.work(at, n);
      if (at >= slow_from) took *= slowdown;
      took *= 1 + jitter * std::uniform_real_distribution<double>(0, 1)(random);
      cost.observe(cost.rates().work(at, n), most, planned_time,
                   std::chrono::duration_cast<Duration>(std::chrono::duration<double>(took)));
      at += n;
      outcome.seconds += took;
      outcome.longest = std::max(outcome.longest, took / planned);
      outcome.n_long += took > 1.2 * planned ? 1 : 0;
    }
    return outcome;
  }
};

TEST(PrefillCost, KeepsPassesWithinTheirTimeFromTheFirst) {
  for (const double speed : {0.02, 0.2, 1.0, 5.0, 20.0})
    for (const double assumed : {150.0, 1500.0, 15000.0, 0.0}) {
      const Reading reading{.plain_s = 0.07 * speed, .row_s = 0.0015 * speed};
      PrefillCost cost(assumed);
      const auto outcome = reading.read(cost);
      SCOPED_TRACE(::testing::Message() << "speed " << speed << ", assumed " << assumed);
      EXPECT_EQ(outcome.n_long, 0);
      EXPECT_LE(outcome.longest, 1.2);
    }
}

TEST(PrefillCost, UsesTheTimeThatItHas) {
  PrefillCost cost(1500);
  const Reading reading{};
  const auto outcome = reading.read(cost);
  EXPECT_LE(outcome.n_passes * Reading::kPass, 1.15 * outcome.seconds);
}

// A neighbour takes half of the cores in the middle of a prompt: the pass under way is twice as
// long, the next a little, as its fixed part has doubled, too.
TEST(PrefillCost, BelievesASlowPassAtOnce) {
  PrefillCost cost(1500);
  const Reading reading{.slow_from = 4000, .slowdown = 2};
  const auto outcome = reading.read(cost);
  EXPECT_LE(outcome.n_long, 2);
  EXPECT_LE(outcome.longest, 2.05);
}

TEST(PrefillCost, TheNextPromptBeginsWithWhatTheLastOneTaught) {
  PrefillCost cost(1500);
  const Reading reading{.jitter = 0.3};
  reading.read(cost);
  const auto second = reading.read(cost);
  EXPECT_LE(second.longest, 1.45) << "the jitter, and what a wrong context adds";
  EXPECT_LE(second.n_passes * Reading::kPass, 1.4 * second.seconds);
}

TEST(PrefillCost, TheEndOfAPromptTeachesNothingUnlessItIsSlow) {
  PrefillCost cost;
  cost.observe(2, 16, milliseconds(500), milliseconds(1000));
  ASSERT_EQ(cost.rates().row_s, 0) << "it says what the weights cost, not a row";
  cost.observe(100, 100, milliseconds(250), milliseconds(200));
  ASSERT_DOUBLE_EQ(cost.rates().row_s, 0.002);
  cost.observe(3, 125, milliseconds(250), milliseconds(100));
  EXPECT_DOUBLE_EQ(cost.rates().row_s, 0.002);
  cost.observe(3, 125, milliseconds(250), milliseconds(500));
  EXPECT_DOUBLE_EQ(cost.rates().row_s, 0.004);
  cost.observe(60, 62, milliseconds(250), milliseconds(120));
  EXPECT_DOUBLE_EQ(cost.rates().row_s, 0.003) << "half of what it became quicker";
}

}  // namespace
}  // namespace foretoken
