// What a pass of several rows takes, in passes of one row: the curve that the timed models sleep by
// and that the schedules' model computes with. Piecewise linear through points like those of a CPU
// whose passes are bound by memory up to about nine rows; beyond the last point it goes on with the
// last slope. Pure.
#pragma once

#include <array>
#include <cstddef>

namespace foretoken::bench {

struct RowCost {
  double rows;
  double cost;
};
inline constexpr std::array<RowCost, 5> kRowCurve{
    {{1, 1.00}, {5, 1.08}, {9, 1.30}, {16, 1.45}, {33, 1.95}}};

constexpr double row_cost(double rows) {
  if (rows <= kRowCurve.front().rows) return kRowCurve.front().cost;
  std::size_t to = 1;
  while (to + 1 < kRowCurve.size() && rows > kRowCurve[to].rows) ++to;
  const RowCost &a = kRowCurve[to - 1], &b = kRowCurve[to];
  return a.cost + (rows - a.rows) * (b.cost - a.cost) / (b.rows - a.rows);
}

}  // namespace foretoken::bench
