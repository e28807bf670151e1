#include "common/spec/calibration.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace foretoken {
namespace {

constexpr double kOneSided90 = 1.2816;  // standard deviations below the mean that 10 % undercut
// Caution never says never: a class believed hopeless and never tried would stay so for ever, also
// where one more row costs nothing.
constexpr double kLeastOfMean = 0.35;
constexpr double kPriorWeight = 6;       // observations that a prior is worth
constexpr double kFade = 1 - 1.0 / 256;  // per observation: about the last 256 count
// A class of agreement with fewer observations is not known well yet.
constexpr double kWellKnownCount = 64;
// Of a depth, per round of the same proposer.
constexpr double kDepthFade = 1 - 1.0 / 256;

}  // namespace

std::size_t Calibration::depth_class(std::uint32_t depth) {
  return depth < 2 ? depth : depth < 4 ? 2 : 3;
}

std::size_t Calibration::confidence_class(const PathToken& token) {
  return std::size_t{token.confidence} * kConfidences / 256;
}

std::size_t Calibration::agreement_class(const PathToken& token) {
  if (token.is_runner_up) return kAgreements - 1;
  return static_cast<std::size_t>(std::clamp(token.sources.size() - 1, 0, 2));
}

std::size_t Calibration::place_of(const PathToken& token) {
  return static_cast<std::size_t>(token.source) * kOfSource +
         agreement_class(token) * kConfidences + confidence_class(token);
}

double Calibration::mean(const PathToken& token, std::uint32_t depth) const {
  const Confidence& counts = known_[place_of(token)];
  const Cell& here = counts.at_depth[depth_class(depth)];
  const double said = token.confidence / 255.0;
  const double overall =
      (counts.all.n_accepted + kPriorWeight * said) / (counts.all.n_tried + kPriorWeight);
  return (here.n_accepted + kPriorWeight * overall) / (here.n_tried + kPriorWeight);
}

double Calibration::cautious(const PathToken& token, std::uint32_t depth, double odds) const {
  const double of_all = mean(token, depth);
  const double here = odds * of_all / (1 - of_all + odds * of_all);
  const double n = known_[place_of(token)].all.n_tried + kPriorWeight;
  const double below = here - kOneSided90 * std::sqrt(here * (1 - here) / n);
  return std::clamp(below, kLeastOfMean * here, 1.0);
}

// That others say the same makes no token worse. Without this a second source would take tokens
// away from a class that is known to one that is not, and caution would cut what was verified
// before.
double Calibration::acceptance(const PathToken& token, std::uint32_t depth, double odds) const {
  double most = cautious(token, depth, odds);
  if (token.is_runner_up || token.sources.size() < 2 ||
      known_[place_of(token)].all.n_tried >= kWellKnownCount)
    return most;
  PathToken alone = token;
  token.sources.for_each([&](ProposerKind source) {
    alone.source = source;
    alone.sources = source;
    // Of a class that is not known either, what the source claims would be all that counts.
    if (known_[place_of(alone)].all.n_tried >= kWellKnownCount)
      most = std::max(most, cautious(alone, depth, odds));
  });
  return most;
}

void Calibration::observe(std::span<const ScoredToken> scored) {
  if (!scored.empty()) ++n_observed_;
  std::array<bool, kProposerKinds> has_faded{};
  for (const ScoredToken& each : scored) {
    const auto source = static_cast<std::size_t>(each.token.source);
    if (!std::exchange(has_faded[source], true))
      for (Confidence& confidence : std::span(known_).subspan(source * kOfSource, kOfSource))
        for (Cell& cell : confidence.at_depth) cell.fade(kDepthFade);
    Confidence& counts = known_[place_of(each.token)];
    for (Cell* cell : {&counts.all, &counts.at_depth[depth_class(each.depth)]}) {
      cell->fade(kFade);
      cell->n_tried += 1;
      cell->n_accepted += each.stood ? 1 : 0;
    }
  }
}

}  // namespace foretoken
