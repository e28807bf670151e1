// How often the target's token is among the runners-up of a guess that is wrong: the timed models
// draw by it and the schedules' model computes with it. Assumed, not measured with a real pair:
// linear between points below what synthetic pairs with shared noise showed, as errors of a real
// draft depend on one another; none of a draft that is never right. Pure.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

namespace foretoken::bench {

// P(it is one of the first rank + 1 runners-up | the guess is wrong), of a draft whose guesses
// stand with this probability.
constexpr double runner_up_coverage(double acceptance, std::size_t rank) {
  constexpr std::array<std::array<double, 3>, 3> kAt{
      {{0.40, 0.57, 0.66}, {0.55, 0.72, 0.80}, {0.65, 0.82, 0.89}}};  // of 0.6, 0.8, 0.9
  rank = std::min<std::size_t>(rank, 2);
  if (acceptance < 0.6) return kAt[0][rank] * std::max(0.0, acceptance) / 0.6;
  const std::size_t from = acceptance < 0.8 ? 0 : 1;
  const double begin = from == 0 ? 0.6 : 0.8, length = from == 0 ? 0.2 : 0.1;
  const double slope = (kAt[from + 1][rank] - kAt[from][rank]) / length;
  return std::min(1.0, kAt[from][rank] + slope * (acceptance - begin));
}

}  // namespace foretoken::bench
