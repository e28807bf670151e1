// How often a value fell into which range, as Prometheus counts it: a number for every upper bound,
// one for what is above them all, and the sum. Plain numbers of one thread: an observation takes
// no lock and no memory, so it may stand on the path of a token. Services hand it to Metrics when
// metrics are read.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/base/check.h"
#include "common/base/clock.h"

namespace foretoken {

class Histogram {
 public:
  // Upper bounds, ascending; a value that equals one is counted below it. Borrowed: a constant.
  explicit Histogram(std::span<const double> bounds)
      : bounds_(bounds), counts_(bounds.size() + 1) {}

  void observe(double value) {
    if (std::isnan(value)) return;  // it would make the sum useless for good
    const auto bound = std::lower_bound(bounds_.begin(), bounds_.end(), value);
    ++counts_[static_cast<std::size_t>(bound - bounds_.begin())];
    sum_ += value;
  }
  // In seconds. A negative one is zero.
  void observe(Duration duration) {
    observe(std::max(0.0, std::chrono::duration<double>(duration).count()));
  }
  // All that another one of the same bounds has observed.
  void add(const Histogram& other) {
    FORETOKEN_CHECK(other.counts_.size() == counts_.size());
    for (std::size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
    sum_ += other.sum_;
  }

  std::span<const double> bounds() const { return bounds_; }
  std::span<const std::uint64_t> counts() const { return counts_; }  // [bounds().size() + 1]
  double sum() const { return sum_; }
  std::uint64_t count() const {
    std::uint64_t n = 0;
    for (const std::uint64_t each : counts_) n += each;
    return n;
  }

 private:
  std::span<const double> bounds_;
  std::vector<std::uint64_t> counts_;
  double sum_ = 0;
};

// 0.1 ms ... 2560 s: what a client waits for.
std::span<const double> latency_bounds();
// 10 us ... 10 s: parts of a round.
std::span<const double> round_bounds();
// 1, 2, 5, 10 ... 1,000,000: tokens of a request.
std::span<const double> token_bounds();

}  // namespace foretoken
