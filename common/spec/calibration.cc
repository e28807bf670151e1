#include "common/spec/calibration.h"

#include <algorithm>
#include <cmath>

namespace foretoken {
namespace {

constexpr double kOneSided90 = 1.2816;  // standard deviations below the mean that 10 % undercut
// Caution never says never: a class believed hopeless and never tried would stay so for ever, also
// where one more row costs nothing.
constexpr double kLeastOfMean = 0.35;
constexpr double kPriorWeight = 6;       // observations that a prior is worth
constexpr double kFade = 1 - 1.0 / 256;  // per observation: about the last 256 count
constexpr double kIdleFade =
    1 - 1.0 / 512;                  // per round of the same proposer, for what it did not try
constexpr double kSurprise = 0.25;  // what a success in a trial leaves of older counts

}  // namespace

std::size_t Calibration::depth_class(std::uint32_t depth) {
  return depth < 2 ? depth : depth < 4 ? 2 : 3;
}

std::size_t Calibration::confidence_class(const PathToken& token) {
  return std::size_t{token.confidence} * kConfidences / 256;
}

double Calibration::acceptance(const PathToken& token, std::uint32_t depth) const {
  const Confidence& known = cells_[static_cast<std::size_t>(token.source)][confidence_class(token)];
  const Cell& here = known.at_depth[depth_class(depth)];
  const double said = token.confidence / 255.0;
  const double overall =
      (known.all.n_accepted + kPriorWeight * said) / (known.all.n_tried + kPriorWeight);
  const double mean = (here.n_accepted + kPriorWeight * overall) / (here.n_tried + kPriorWeight);
  const double n = known.all.n_tried + kPriorWeight;
  const double cautious = mean - kOneSided90 * std::sqrt(mean * (1 - mean) / n);
  return std::clamp(cautious, kLeastOfMean * mean, 1.0);
}

void Calibration::observe(std::span<const PathToken> verified,
                          std::uint32_t n_accepted,
                          RoundKind kind) {
  if (verified.empty()) return;
  for (Confidence& confidence : cells_[static_cast<std::size_t>(verified[0].source)]) {
    confidence.all.fade(kIdleFade);
    for (Cell& cell : confidence.at_depth) cell.fade(kIdleFade);
  }
  // Tokens after the first that fell were never compared on their own merits.
  const std::size_t n_judged = std::min<std::size_t>(verified.size(), std::size_t{n_accepted} + 1);
  for (std::size_t i = 0; i < n_judged; ++i) {
    const bool stood = i < n_accepted;
    Confidence& known =
        cells_[static_cast<std::size_t>(verified[i].source)][confidence_class(verified[i])];
    for (Cell* cell : {&known.all, &known.at_depth[depth_class(static_cast<std::uint32_t>(i))]}) {
      cell->fade(stood && kind == RoundKind::kTrial ? kSurprise : kFade);
      cell->n_tried += 1;
      cell->n_accepted += stood ? 1 : 0;
    }
  }
}

}  // namespace foretoken
