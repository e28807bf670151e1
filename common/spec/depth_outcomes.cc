#include "common/spec/depth_outcomes.h"

#include <algorithm>

namespace foretoken {
namespace {

constexpr double kOutcomeFade = 1 - 1.0 / 256;  // per outcome of the same depth
constexpr double kFirstStands = 0.8;            // of a first token that nothing is known of
constexpr double kDepthWeight = 4;              // outcomes that the depth before is worth

}  // namespace

void DepthOutcomes::observe(std::uint32_t depth, bool stood) {
  if (depth >= outcomes_.size()) return;
  Outcomes& known = outcomes_[depth];
  known.n_tried = kOutcomeFade * known.n_tried + 1;
  known.n_stood = kOutcomeFade * known.n_stood + (stood ? 1 : 0);
  rate();
}

void DepthOutcomes::rate() {
  double stands = kFirstStands;
  for (std::size_t depth = 0; depth < outcomes_.size(); ++depth) {
    const Outcomes& known = outcomes_[depth];
    stands = (known.n_stood + kDepthWeight * stands) / (known.n_tried + kDepthWeight);
    rates_[depth] = stands;
  }
}

double DepthOutcomes::rate_at(std::uint32_t depth) const {
  return rates_[std::min<std::size_t>(depth, rates_.size() - 1)];
}

ChainWorth DepthOutcomes::extended(ChainWorth chain, std::uint32_t n, double odds) const {
  const double rate = rate_at(n);
  chain.survival *= rate * odds / (1 - rate + rate * odds);
  chain.tokens += chain.survival;
  return chain;
}

ChainWorth DepthOutcomes::chain(std::uint32_t n, double odds) const {
  ChainWorth chain;
  for (std::uint32_t i = 0; i < n; ++i) chain = extended(chain, i, odds);
  return chain;
}

}  // namespace foretoken
