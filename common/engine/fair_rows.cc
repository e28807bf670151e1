#include "common/engine/fair_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace foretoken {
namespace {

constexpr double kRounding = 1e-9;

// Of the time that a share leaves beyond an even pass, for the rows of others. A pass is not all
// the time of a request: encoding, prompts of others and messages take longer beside others, too.
constexpr double kForRows = 0.5;

// Rows of a pass to which no flow brings more, by weight, than this one.
std::uint32_t even_rows(std::span<const FlowDemand> flows, const FlowDemand& one) {
  double rows = 0;
  for (const FlowDemand& flow : flows)
    rows += std::min<double>(flow.rows, flow.weight / one.weight * one.rows);
  return static_cast<std::uint32_t>(rows + kRounding);
}

// Seconds that a pass may take so that each flow keeps its share of its own pace.
double longest_pass(std::span<const FlowDemand> flows, const StepCost& cost, double all_weights) {
  double longest = std::numeric_limits<double>::infinity();
  for (const FlowDemand& flow : flows) {
    if (flow.rows == 0) continue;
    const double share = all_weights / flow.weight * cost.seconds(flow.rows);
    const double even = cost.seconds(even_rows(flows, flow));
    longest = std::min({longest, share, even + kForRows * std::max(0.0, share - even)});
  }
  return longest;
}

}  // namespace

std::vector<std::uint32_t> fair_rows(std::span<const FlowDemand> flows, const StepCost& cost) {
  double weights = 0;
  std::uint32_t wanted = 0;
  for (const FlowDemand& flow : flows) {
    if (flow.rows == 0) continue;
    weights += flow.weight;
    wanted += flow.rows;
  }
  if (flows.size() < 2 || !cost.knows_anything()) return {};
  double left = cost.rows_within(longest_pass(flows, cost, weights), wanted);
  if (left >= wanted) return {};

  std::vector<std::size_t> order(flows.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return flows[a].rows / flows[a].weight < flows[b].rows / flows[b].weight;
  });
  std::vector<std::uint32_t> given(flows.size(), 0);
  for (const std::size_t i : order) {
    if (flows[i].rows == 0) continue;
    const auto share = static_cast<std::uint32_t>(
        std::ceil(std::max(0.0, left) * flows[i].weight / weights - kRounding));
    given[i] = std::max(kLeastFlowRows, std::min(flows[i].rows, share));
    left -= std::min(given[i], flows[i].rows);
    weights -= flows[i].weight;
  }
  return given;
}

}  // namespace foretoken
