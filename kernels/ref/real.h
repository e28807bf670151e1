// A number of the oracle: its value in double precision, and how far a faithful fp32 implementation
// may stray from it. The slack follows the value through every operation, to first order and
// rounded up, so no test brings a tolerance of its own. Only the oracle and its tests include this.
#pragma once

#include <cmath>
#include <limits>

namespace foretoken::ref {

inline constexpr double kF32Unit = 0x1p-24;  // relative rounding error of one fp32 operation
inline constexpr double kBf16Unit = 0x1p-8;
inline constexpr double kF16Unit = 0x1p-11;
inline constexpr double kF16Step = 0x1p-25;  // absolute, among the subnormals
inline constexpr double kE4m3Unit = 0x1p-4;
inline constexpr double kE4m3Step = 0x1p-10;
inline constexpr double kE4m3Largest = 448;
inline constexpr double kTiny = 0x1p-126;  // what flushing a subnormal may lose

struct Real {
  double value = 0;
  double slack = 0;
};

inline Real exactly(double value) { return {value, 0}; }

// One more rounding of relative size `unit`.
inline Real rounded(Real a, double unit = kF32Unit) {
  return {a.value, a.slack + unit * (std::fabs(a.value) + a.slack) + kTiny};
}

inline Real operator+(Real a, Real b) { return rounded({a.value + b.value, a.slack + b.slack}); }
inline Real operator-(Real a, Real b) { return rounded({a.value - b.value, a.slack + b.slack}); }
inline Real operator*(Real a, Real b) {
  const double slack =
      std::fabs(a.value) * b.slack + std::fabs(b.value) * a.slack + a.slack * b.slack;
  return rounded({a.value * b.value, slack});
}
inline Real operator/(Real a, Real b) {
  const double quotient = a.value / b.value;
  const double least = std::fabs(b.value) - b.slack;
  if (least <= 0) return {quotient, std::numeric_limits<double>::infinity()};
  return rounded({quotient, (a.slack + std::fabs(quotient) * b.slack) / least});
}
inline Real square_root(Real a) {
  const double root = std::sqrt(a.value);
  return rounded({root, root > 0 ? a.slack / root : std::sqrt(a.slack)});
}
// The exponential of fp32 code: a few units of its own on top of what its argument brings.
inline Real exponential(Real a) {
  const double y = std::exp(a.value);
  return rounded({y, y * std::expm1(a.slack)}, 4 * kF32Unit);
}

}  // namespace foretoken::ref
