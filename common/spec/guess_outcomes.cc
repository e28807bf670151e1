#include "common/spec/guess_outcomes.h"

namespace foretoken {
namespace {

constexpr double kOwnFigureWeight = 6;             // outcomes that the draft's own figure is worth
constexpr double kConfidenceFade = 1 - 1.0 / 256;  // per outcome of a confidence
constexpr double kInsteadStep = 1.0 / 64;          // of the way to an outcome

}  // namespace

void GuessOutcomes::observe(std::uint8_t confidence, bool stood) {
  Counts& counts = by_confidence_[std::size_t{confidence} * kConfidences / 256];
  counts.n_tried = counts.n_tried * kConfidenceFade + 1;
  counts.n_stood = counts.n_stood * kConfidenceFade + (stood ? 1 : 0);
}

void GuessOutcomes::observe_instead(std::optional<std::size_t> rank) {
  for (std::size_t at = 0; at < kRanks; ++at)
    instead_[at] += kInsteadStep * ((rank == at ? 1 : 0) - instead_[at]);
}

double GuessOutcomes::stands(std::uint8_t confidence) const {
  const Counts& counts = by_confidence_[std::size_t{confidence} * kConfidences / 256];
  return (counts.n_stood + kOwnFigureWeight * confidence / 255.0) /
         (counts.n_tried + kOwnFigureWeight);
}

}  // namespace foretoken
