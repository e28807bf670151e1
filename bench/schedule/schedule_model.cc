#include "bench/schedule/schedule_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <functional>
#include <random>
#include <utility>
#include <vector>

#include "bench/schedule/row_curve.h"
#include "bench/schedule/runner_up_coverage.h"

namespace foretoken::bench {
namespace {

constexpr int kAll = 1 << 28;   // guesses: more than any run uses
constexpr double kTiny = 1e-9;  // of times that are sums of equal steps

// The guesses of such a draft are there as soon as they are begun.
bool is_free(const ScheduleSetting& setting) { return setting.cost <= kTiny; }

// Steps of the draft that have ended; negative for a time before the first.
int n_steps_in(double time, const ScheduleSetting& setting) {
  if (is_free(setting)) return time >= -kTiny ? kAll : -1;
  return static_cast<int>(std::clamp<double>(std::floor(time / setting.cost + kTiny), -kAll, kAll));
}

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
    begun_ = agrees ? at : end_of_step_at(at);
    n_used_ = 0;
    n_right_ = draw_right();
  }

  double end_of_step_at(double at) const {
    if (is_free(setting_)) return at;
    return begun_ + std::ceil((at - begun_) / setting_.cost - kTiny) * setting_.cost;
  }

  int n_made_by(double at) const { return n_steps_in(at - begun_, setting_); }

  // Guesses of a new chain that are right before the first wrong one.
  int draw_right() {
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

// What may come of a pass that verifies n guesses: after j of them that stand the draft's own next
// guess (j = n alone) or a runner-up.
struct Outcome {
  double probability = 0;
  int n_accepted = 0;
  int rank = 0;  // of the runner-up, or kOwnGuess
};
constexpr int kOwnGuess = -1;

// One target and one draft that prepares for what may come of each pass.
class BranchesRun {
 public:
  struct Waits {
    int most_guesses = 1;
    int after_hit = 0;   // guesses waited for
    int after_miss = 0;  // likewise; 0: a pass without guesses at once
  };
  BranchesRun(const ScheduleSetting& setting, int n_texts, const Waits& waits)
      : setting_(setting), n_texts_(n_texts), waits_(waits) {}

  ScheduleValue run(int n_rounds) {
    double n_tokens = 0;
    for (int round = 0; round < n_rounds; ++round) n_tokens += verify();
    return {.speedup = n_tokens / now_,
            .length = waits_.most_guesses,
            .tokens_per_round = n_tokens / n_rounds};
  }

 private:
  int verify() {
    now_ += row_cost(n_guesses_ + 1);
    int n_accepted = 0;
    while (n_accepted < n_guesses_ && chance() < setting_.acceptance) ++n_accepted;
    has_text_for(n_accepted) ? hit() : miss();
    return n_accepted + 1;
  }

  // The draft knew the prefix of this pass at known_ and needed a step to begin its texts.
  void hit() {
    const double arrives = setting_.round_trip / 2;
    const double heard = now_ + arrives;
    const int n_made = n_steps_in(now_ - arrives - known_, setting_) - 1;
    n_guesses_ = std::clamp(n_made, 0, waits_.most_guesses);
    if (n_guesses_ < waits_.after_hit) {
      n_guesses_ = waits_.after_hit;
      now_ = std::max(now_, known_ + (n_guesses_ + 1) * setting_.cost + arrives);
    }
    known_ = heard;
  }

  void miss() {
    known_ = now_ + setting_.round_trip / 2;
    n_guesses_ = waits_.after_miss;
    if (n_guesses_ == 0) return;
    known_ += n_guesses_ * setting_.cost;
    now_ += setting_.round_trip + n_guesses_ * setting_.cost;
  }

  bool has_text_for(int n_accepted) {
    const bool is_own = n_accepted == n_guesses_ && chance() < setting_.acceptance;
    const double u = chance();
    return std::ranges::any_of(texts_after(n_guesses_), [&](const Outcome& text) {
      if (text.n_accepted != n_accepted) return false;
      if (is_own || text.rank == kOwnGuess) return is_own && text.rank == kOwnGuess;
      const double most =
          runner_up_coverage(setting_.acceptance, static_cast<std::size_t>(text.rank));
      return u < most && u >= most - coverage(text.rank);
    });
  }

  // The likeliest outcomes of a pass of so many guesses, which have a text.
  const std::vector<Outcome>& texts_after(int n_guesses) {
    std::vector<Outcome>& texts = texts_[static_cast<std::size_t>(n_guesses)];
    if (!texts.empty()) return texts;
    double reached = 1;
    const double a = setting_.acceptance;
    for (int j = 0; j <= n_guesses; ++j, reached *= a) {
      if (j == n_guesses) texts.push_back({reached * a, j, kOwnGuess});
      for (int rank = 0; rank < 3; ++rank)
        texts.push_back({reached * (1 - a) * coverage(rank), j, rank});
    }
    std::ranges::sort(texts, std::greater{}, &Outcome::probability);
    texts.resize(std::min<std::size_t>(texts.size(), static_cast<std::size_t>(n_texts_)));
    return texts;
  }

  double coverage(int rank) const {
    const auto at = static_cast<std::size_t>(rank);
    return runner_up_coverage(setting_.acceptance, at) -
           (rank == 0 ? 0 : runner_up_coverage(setting_.acceptance, at - 1));
  }
  double chance() { return std::generate_canonical<double, 53>(random_); }

  const ScheduleSetting& setting_;
  const int n_texts_;
  const Waits waits_;
  std::mt19937_64 random_{7};
  double now_ = 0;
  double known_ = 0;
  int n_guesses_ = 0;  // of the next pass
  std::array<std::vector<Outcome>, kMostGuesses + 1> texts_;
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
  for (int most = 1; most <= kMostGuesses; ++most)
    for (const int awaited : {0, 1, 2, 4, 7, 11}) {
      if (awaited > most) continue;
      const ScheduleValue value = ChainRun(setting, most, awaited).run(n_rounds);
      if (value.speedup > best.speedup) best = value;
    }
  return best;
}

ScheduleValue branches_value(const ScheduleSetting& setting, int n_texts, int n_rounds) {
  ScheduleValue best;
  for (int most = 1; most <= kMostGuesses; ++most)
    for (const int after_miss : {0, 1, 2, 3, 4, 6, 8, 12})
      for (const int after_hit : {0, 2, 4}) {
        if (after_miss > most || after_hit > most) continue;
        const BranchesRun::Waits waits{most, after_hit, after_miss};
        const ScheduleValue value = BranchesRun(setting, n_texts, waits).run(n_rounds);
        if (value.speedup > best.speedup) best = value;
      }
  return best;
}

}  // namespace foretoken::bench
