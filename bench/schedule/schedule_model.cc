#include "bench/schedule/schedule_model.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "bench/schedule/row_curve.h"

namespace foretoken::bench {
namespace {

constexpr double kTiny = 1e-9;  // of times that are sums of equal steps

// One target and one draft that never stops, in simulated time.
class ChainRun {
 public:
  ChainRun(const ScheduleSetting& setting, int most_guesses, int n_awaited)
      : setting_(setting),
        most_guesses_(most_guesses),
        n_awaited_(n_awaited),
        n_right_(draw_right()) {}

  ScheduleValue run(int n_rounds) {
    double n_tokens = 0;
    for (int round = 0; round < n_rounds; ++round) n_tokens += verify();
    return {.speedup = n_tokens / now_,
            .length = most_guesses_,
            .tokens_per_round = n_tokens / n_rounds};
  }

 private:
  // One pass of the target: the tokens it brings.
  int verify() {
    const double arrives = setting_.round_trip / 2;
    if (n_awaited_ > 0)
      now_ = std::max(now_, begun_ + (n_used_ + n_awaited_) * setting_.cost + arrives);
    const int n_guesses = std::clamp(n_made_by(now_ - arrives) - n_used_, 0, most_guesses_);
    now_ += row_cost(n_guesses + 1);
    const int n_accepted = std::clamp(n_right_ - n_used_, 0, n_guesses);
    n_used_ += n_accepted + 1;
    hear_of_it(now_ + arrives);
    return n_accepted + 1;
  }

  // The draft hears which tokens stand. A chain that agrees with them goes on; else a new one
  // begins, after the step under way if its last guesses were wrong, at once if it was only behind.
  void hear_of_it(double at) {
    const bool agrees = n_right_ >= n_used_;
    if (agrees && n_made_by(at) >= n_used_) return;
    const double n_steps = std::ceil((at - begun_) / setting_.cost - kTiny);
    begun_ = agrees ? at : begun_ + n_steps * setting_.cost;
    n_used_ = 0;
    n_right_ = draw_right();
  }

  int n_made_by(double at) const {
    return static_cast<int>(std::floor((at - begun_) / setting_.cost + kTiny));
  }

  // Guesses of a new chain that are right before the first wrong one.
  int draw_right() {
    constexpr int kAll = 1 << 28;
    if (setting_.acceptance >= 1) return kAll;
    if (setting_.acceptance <= 0) return 0;
    const double u = std::generate_canonical<double, 53>(random_);
    return static_cast<int>(std::min<double>(kAll, std::log1p(-u) / std::log(setting_.acceptance)));
  }

  const ScheduleSetting& setting_;
  const int most_guesses_;
  const int n_awaited_;
  std::mt19937_64 random_{7};
  double now_ = 0;
  double begun_ = 0;  // when the draft began this chain
  int n_used_ = 0;    // of its guesses are behind the target
  int n_right_;
};

}  // namespace

double expected_tokens(double acceptance, int n_guesses) {
  if (acceptance >= 1) return n_guesses + 1;
  return (1 - std::pow(acceptance, n_guesses + 1)) / (1 - acceptance);
}

ScheduleValue synchronous_value(const ScheduleSetting& setting) {
  const double plain = row_cost(setting.n_sequences);
  const double draft_step = setting.cost * row_cost(setting.n_sequences);
  ScheduleValue best;
  for (int k = 1; k <= kMostGuesses; ++k) {
    const double round =
        k * draft_step + setting.round_trip + row_cost(setting.n_sequences * (k + 1));
    const double n_tokens = expected_tokens(setting.acceptance, k);
    const double speedup = n_tokens * plain / round;
    if (speedup > best.speedup)
      best = {.speedup = speedup, .length = k, .tokens_per_round = n_tokens};
  }
  return best;
}

ScheduleValue chain_value(const ScheduleSetting& setting, int n_rounds) {
  ScheduleValue best;
  if (setting.cost <= 0) return best;  // a draft that costs nothing has no steps to simulate
  for (int most = 1; most <= kMostGuesses; ++most)
    for (const int awaited : {0, 1, 2, 4, 7, 11}) {
      if (awaited > most) continue;
      const ScheduleValue value = ChainRun(setting, most, awaited).run(n_rounds);
      if (value.speedup > best.speedup) best = value;
    }
  return best;
}

}  // namespace foretoken::bench
