#include "common/spec/draft_budget.h"

#include <algorithm>

namespace foretoken {
namespace {

constexpr double kWaitFade = 1 - 1.0 / 128;  // of waits, per wait
constexpr std::uint32_t kFewRounds = 8;      // until these the request's limit is asked for
constexpr std::uint32_t kAnotherEvery = 8;   // rounds
// Steps without an answer after which half as many are asked for: one over a distant link may take
// as many as its chain has tokens, and be used.
constexpr std::uint32_t kPatience = 2 * kMaxDraftTokens;
constexpr double kNoSpread = 1e-6;  // of the square of the mean number of tokens
constexpr double kDoubt = 0.5;      // standard error of what is assumed of a token's cost, of it

}  // namespace

void DraftBudget::observe_wait(Duration waited, std::uint32_t n_made) {
  if (n_made == 0) return;
  ++n_rounds_;
  observe_answer();
  const double n = n_made, seconds = std::chrono::duration<double>(waited).count();
  waits_.weight = kWaitFade * waits_.weight + 1;
  waits_.n = kWaitFade * waits_.n + n;
  waits_.seconds = kWaitFade * waits_.seconds + seconds;
  waits_.nn = kWaitFade * waits_.nn + n * n;
  waits_.n_seconds = kWaitFade * waits_.n_seconds + n * seconds;
  waits_.square_seconds = kWaitFade * waits_.square_seconds + seconds * seconds;
}

void DraftBudget::observe_answer() {
  n_unanswered_ = 0;
  most_ = std::min(2 * most_, kMaxDraftTokens);
}

void DraftBudget::observe_owed() {
  if (++n_unanswered_ < kPatience) return;
  n_unanswered_ = 0;
  most_ = std::max(most_ / 2, 1u);
}

// The slope of the line, as far as the waits determine it. Numbers that hardly differ, or waits
// that scatter, leave it open; then it is assumed that nothing is fixed.
DraftBudget::WaitCost DraftBudget::wait_cost() const {
  if (waits_.weight == 0) return {};
  const double n = waits_.n / waits_.weight, seconds = waits_.seconds / waits_.weight;
  if (seconds <= 0) return {};
  const double spread = waits_.nn / waits_.weight - n * n,
               scatter = waits_.square_seconds / waits_.weight - seconds * seconds;
  const double assumed = seconds / n;
  double per_token = assumed;
  if (spread > kNoSpread * n * n) {
    const double slope = (waits_.n_seconds / waits_.weight - n * seconds) / spread;
    const double error = std::max(scatter - slope * slope * spread, 0.0) / (waits_.weight * spread);
    const double doubt = kDoubt * assumed * kDoubt * assumed;
    per_token = (slope * doubt + assumed * error) / (doubt + error);
    per_token = std::clamp(per_token, 0.0, assumed);
  }
  return {.fixed = seconds - per_token * n, .per_token = per_token};
}

std::uint32_t DraftBudget::best(std::uint32_t n_sequences,
                                std::uint32_t cap,
                                const StepCost& cost) const {
  cap = std::min(cap, most_);
  if (cap == 0) return 0;
  if (n_rounds_ < kFewRounds || !cost.knows_anything()) return cap;
  const Steps steps = steps_of(n_sequences, cap, cost);
  const WaitCost wait = wait_cost();
  std::uint32_t best = 1;
  double most = 0;
  for (std::uint32_t n_asked = 1; n_asked <= cap; ++n_asked) {
    const double waited = wait.fixed + wait.per_token * n_asked;
    for (std::uint32_t n = 1; n <= n_asked; ++n) {
      const double rate = steps[n - 1].tokens / (steps[n - 1].seconds + waited);
      if (rate < most) continue;
      most = rate;
      best = n_asked;
    }
  }
  if (n_rounds_ % kAnotherEvery != 0 || wait.per_token <= 0) return best;
  return best < cap ? std::min(cap, best + (best + 1) / 2) : (best + 1) / 2;
}

// Of a step that verifies 1, 2, ... cap tokens of each sequence.
DraftBudget::Steps DraftBudget::steps_of(std::uint32_t n_sequences,
                                         std::uint32_t cap,
                                         const StepCost& cost) const {
  Steps steps{};
  ChainWorth chain;
  for (std::uint32_t n = 1; n <= cap; ++n) {
    chain = outcomes_.extended(chain, n - 1);
    steps[n - 1] = {1 + chain.tokens, cost.seconds(n_sequences * (n + 1))};
  }
  return steps;
}

}  // namespace foretoken
