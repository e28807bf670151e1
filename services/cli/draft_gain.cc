#include "services/cli/draft_gain.h"

#include <cstdio>

#include "common/base/check.h"

namespace foretoken::cli {
namespace {

std::string percentage(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", 100 * share);
  return text;
}

std::string times_plain(double gain) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f x", gain);
  return text;
}

}  // namespace

PredictedRound best_round(double acceptance, double cost, int most_guesses) {
  FORETOKEN_CHECK(most_guesses >= 1, "a round of guesses");
  PredictedRound best;
  double tokens = 1, chance = 1;
  for (int k = 1; k <= most_guesses; ++k) {
    chance *= acceptance;
    tokens += chance;
    const double gain = tokens / (k * cost + 1);
    if (gain > best.gain) best = {k, gain};
  }
  return best;
}

double self_draft_cost(const ModelInfo& target, WeightDType dtype) {
  return static_cast<double>(estimate_memory(target, {.dtype = WeightDType::kI4}).weight_bytes) /
         static_cast<double>(estimate_memory(target, {.dtype = dtype}).weight_bytes);
}

// k guesses gain where a + a^2 + ... + a^k > k * cost; with a <= cost < 1 no power of a is above
// cost, and with a > cost one guess gains: the bound is the cost itself.
std::string self_draft_prediction(double cost, int most_guesses) {
  std::string line =
      "a draft step reads " + percentage(cost) + " of a target step's bytes; predicted";
  if (best_round(1, cost, most_guesses).gain <= 1) return line + ": no gain over plain decoding";
  line += ", greedy: " + times_plain(best_round(1, cost, most_guesses).gain) +
          " plain decoding with every guess right";
  for (const int percent : {90, 80, 70})
    if (const double gain = best_round(percent / 100.0, cost, most_guesses).gain; gain > 1)
      line += ", " + times_plain(gain) + " with " + std::to_string(percent) + " %";
  return line + ", no gain with " + percentage(cost) + " or fewer";
}

}  // namespace foretoken::cli
