#include "common/spec/prefill_cost.h"

#include <algorithm>
#include <cmath>

namespace foretoken {
namespace {

// Of what a pass could have had, from which on its time says what a row costs: the end of a prompt
// alone would seem as dear as the weights that were read for it.
constexpr double kTelling = 0.5;

constexpr double kMostRows = 1e9;
constexpr double kRounding = 1e-9;  // so that the rows of a work are that many again

}  // namespace

std::uint32_t PrefillRates::rows_within(double work, std::uint32_t n_cached) const {
  if (work <= 0) return 0;
  if (context <= 0) return static_cast<std::uint32_t>(std::min(work, kMostRows));
  // work(n_cached, n) = square n^2 + linear n.
  const double square = 0.5 / context;
  const double linear = 1 + (n_cached - 0.5) / context;
  const double n = (std::sqrt(linear * linear + 4 * square * work) - linear) / (2 * square);
  return static_cast<std::uint32_t>(std::clamp(n + kRounding, 0.0, kMostRows));
}

double PrefillRates::work_within(Duration pass) const {
  if (row_s <= 0) return kUnmeasuredRows;
  return std::max(kLeastPrefillRows, in_seconds(pass) / row_s);
}

void PrefillCost::observe(double work, double most, Duration planned, Duration took) {
  const double seconds = in_seconds(took);
  if (work <= 0 || seconds <= 0) return;
  double& row_s = rates_.row_s;
  if (row_s <= 0) {
    // A few rows alone would seem as dear as the weights that were read for them.
    if (work >= kLeastPrefillRows) row_s = seconds / work;
  } else if (work >= kTelling * most) {
    const double sample = seconds / work;
    row_s = sample > row_s ? sample : (row_s + sample) / 2;
  } else if (took > planned) {
    row_s *= seconds / in_seconds(planned);
  }
}

}  // namespace foretoken
