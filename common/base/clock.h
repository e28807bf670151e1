// Time as an argument. Core code takes a TimePoint; only services read a Clock. Monotonic
// everywhere.
#pragma once

#include <chrono>

namespace foretoken {

using Duration = std::chrono::nanoseconds;
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

// Only where no Clock was handed in.
inline TimePoint steady_now() { return std::chrono::steady_clock::now(); }

inline double in_seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const = 0;
};

// For tests and simulation: stands still until told.
class ManualClock final : public Clock {
 public:
  TimePoint now() const override { return now_; }
  void advance(Duration by) { now_ += by; }
  void set(TimePoint to) { now_ = to; }

 private:
  TimePoint now_{};
};

}  // namespace foretoken
