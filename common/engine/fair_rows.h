// How flows share a pass, so that one with many sequences does not take the pace of one with few. A
// pass lasts at most as long as the rows of any one of its flows alone would, divided by that
// flow's share of the weights: of two flows of equal weight the one with fewer rows keeps at least
// half of the pace it would have alone, however many sequences the other has. Rows beyond an even
// pass, in which no flow has more than another by weight, get half of the time that this leaves:
// what is not a pass takes its part, too. Where a pass costs little more with the rows of all, no
// flow is cut. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/spec/step_cost.h"

namespace foretoken {

struct FlowDemand {
  double weight = 1;       // above 0
  std::uint32_t rows = 0;  // it would bring to a pass of its own
};

// A flow that decodes and reads prompts gets a row for each.
inline constexpr std::uint32_t kLeastFlowRows = 2;

// Rows that each flow may bring to the pass, in the order given; those below their share leave the
// rest to the others. Empty: there is no bound, as all fit or no step was measured yet.
std::vector<std::uint32_t> fair_rows(std::span<const FlowDemand> flows, const StepCost& cost);

}  // namespace foretoken
