#include "common/spec/draft_budget.h"

#include <algorithm>
#include <vector>

namespace foretoken {
namespace {

constexpr double kOutcomeFade = 1 - 1.0 / 256;  // of outcomes, per outcome of the same depth
constexpr double kWaitFade = 1 - 1.0 / 128;     // of waits, per wait
constexpr double kFirstStands = 0.8;            // of a first token that nothing is known of
constexpr double kDepthWeight = 4;              // outcomes that the depth before is worth
constexpr std::uint32_t kFewWaits = 8;          // until these the request's limit is asked for
constexpr std::uint32_t kLongerEvery = 8;       // waits
// Mean square of the numbers of tokens around their mean, from which on a line is believed.
constexpr double kLeastSpread = 0.5;

}  // namespace

void DraftBudget::observe_token(std::uint32_t depth, bool stood) {
  if (depth >= outcomes_.size()) return;
  Outcomes& known = outcomes_[depth];
  known.n_tried = kOutcomeFade * known.n_tried + 1;
  known.n_stood = kOutcomeFade * known.n_stood + (stood ? 1 : 0);
}

void DraftBudget::observe_wait(Duration waited, std::uint32_t n_made) {
  if (n_made == 0) return;
  const double n = n_made, seconds = std::chrono::duration<double>(waited).count();
  ++n_waits_;
  waits_.weight = kWaitFade * waits_.weight + 1;
  waits_.n = kWaitFade * waits_.n + n;
  waits_.seconds = kWaitFade * waits_.seconds + seconds;
  waits_.nn = kWaitFade * waits_.nn + n * n;
  waits_.n_seconds = kWaitFade * waits_.n_seconds + n * seconds;
}

// With one number of tokens all the time nothing tells what is fixed from what each costs: all of
// it is put down to the tokens, which asks for fewer, and then the line is known.
DraftBudget::WaitCost DraftBudget::wait_cost() const {
  if (waits_.weight == 0) return {};
  const double n = waits_.n / waits_.weight, seconds = waits_.seconds / waits_.weight;
  const double spread = waits_.nn / waits_.weight - n * n;
  double per_token = seconds / n;
  if (spread >= kLeastSpread) {
    const double slope = (waits_.n_seconds / waits_.weight - n * seconds) / spread;
    per_token = std::clamp(slope, 0.0, per_token);
  }
  return {.fixed = std::max(0.0, seconds - per_token * n), .per_token = per_token};
}

std::uint32_t DraftBudget::best(std::uint32_t n_sequences,
                                std::uint32_t cap,
                                const StepCost& cost) const {
  cap = std::min(cap, kMaxDraftTokens);
  if (n_waits_ < kFewWaits || cap == 0 || !cost.knows_anything()) return cap;
  const std::vector<Step> steps = steps_of(n_sequences, cap, cost);
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
  return n_waits_ % kLongerEvery == 0 ? std::min(cap, best + (best + 1) / 2) : best;
}

// Of a step that verifies 1, 2, ... cap tokens of each sequence.
std::vector<DraftBudget::Step> DraftBudget::steps_of(std::uint32_t n_sequences,
                                                     std::uint32_t cap,
                                                     const StepCost& cost) const {
  std::vector<Step> steps;
  double tokens = 1, survival = 1, stands = kFirstStands;
  for (std::uint32_t n = 1; n <= cap; ++n) {
    const Outcomes& known = outcomes_[n - 1];
    stands = (known.n_stood + kDepthWeight * stands) / (known.n_tried + kDepthWeight);
    survival *= stands;
    tokens += survival;
    steps.push_back({tokens, cost.seconds(n_sequences * (n + 1))});
  }
  return steps;
}

}  // namespace foretoken
