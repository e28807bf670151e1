#include "common/base/histogram.h"

#include <array>

namespace foretoken {

std::span<const double> latency_bounds() {
  static constexpr std::array kBounds{
      0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08,  0.1,   0.25,
      0.5,    0.75,    1.0,    2.5,   5.0,    7.5,   10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0};
  return kBounds;
}

std::span<const double> round_bounds() {
  static constexpr std::array kBounds{0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005,
                                      0.001,   0.0025,   0.005,   0.01,   0.025,   0.05,
                                      0.1,     0.25,     0.5,     1.0,    2.5,     10.0};
  return kBounds;
}

std::span<const double> token_bounds() {
  static constexpr std::array kBounds{
      1.0,    2.0,    5.0,     10.0,    20.0,    50.0,     100.0,    200.0,    500.0,    1000.0,
      2000.0, 5000.0, 10000.0, 20000.0, 50000.0, 100000.0, 200000.0, 500000.0, 1000000.0};
  return kBounds;
}

}  // namespace foretoken
