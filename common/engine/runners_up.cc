#include "common/engine/runners_up.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "common/spec/row_rules.h"
#include "kernels/include/numerics.h"

namespace foretoken {
namespace {

// What is added to its logit; minus infinity where it is forbidden.
double addition_to(TokenId token, std::span<const Adjustment> sorted) {
  const auto at = std::ranges::lower_bound(sorted, token, {}, &Adjustment::id);
  return at != sorted.end() && at->id == token ? at->add : 0;
}

// By which a row would choose it, but for a repetition penalty; minus infinity if it never would.
double score_of(const TopLogprob& each, const RowRule& rule, const StepPlan& plan) {
  const std::span masks(plan.masks);
  if (rule.mask_begin >= 0 &&
      !is_allowed(masks.subspan(static_cast<std::size_t>(rule.mask_begin)), each.token))
    return -std::numeric_limits<double>::infinity();
  const auto begin = plan.adjustments.begin();
  const double logit =
      each.logprob + addition_to(each.token, {begin + rule.adjust_begin, begin + rule.adjust_end});
  if (rule.temperature <= 0) return logit;
  return logit / rule.temperature + gumbel(noise_word(rule.seed, rule.choice, rule.position,
                                                      static_cast<std::uint32_t>(each.token)));
}

}  // namespace

RunnersUp runners_up(std::span<const TopLogprob> likeliest,
                     TokenId chosen,
                     const RowRule& rule,
                     const StepPlan& plan) {
  struct Scored {
    double score = 0;
    TokenId token = -1;
  };
  std::array<Scored, kRunnerUpPool> scored;
  std::size_t n = 0;
  for (const TopLogprob& each : likeliest) {
    if (each.token < 0 || each.token == chosen || n == scored.size()) continue;
    const double score = score_of(each, rule, plan);
    if (std::isfinite(score)) scored[n++] = {score, each.token};
  }
  const std::size_t n_kept = std::min(n, RunnersUp{}.size());
  std::partial_sort(scored.begin(), scored.begin() + static_cast<std::ptrdiff_t>(n_kept),
                    scored.begin() + static_cast<std::ptrdiff_t>(n),
                    [](const Scored& a, const Scored& b) { return a.score > b.score; });
  RunnersUp best = kNoRunnersUp;
  for (std::size_t i = 0; i < n_kept; ++i) best[i] = scored[i].token;
  return best;
}

Guess guess_of(const Step& step, std::size_t slice, const Choice& choice) {
  const float p = std::clamp(std::exp(choice.logprob), 0.0f, 1.0f);
  const StepPlan& plan = step.plan();
  const RowRule& rule = plan.rules[plan.slices[slice].first_choice];
  return {static_cast<std::uint8_t>(std::lround(255.0f * p)),
          runners_up(step.top(slice, 0), choice.token, rule, plan)};
}

}  // namespace foretoken
