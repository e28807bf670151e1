// How often a warning is logged of what may come in hundreds at once: the first time, and then at
// most once in each pause, with the count of all. Pure; one thread.
#pragma once

#include <cstdint>
#include <optional>

#include "common/base/clock.h"

namespace foretoken {

class RareWarning {
 public:
  explicit RareWarning(Duration pause) : pause_(pause) {}

  // One more. Returns how many there were since the start if it is to be logged now.
  std::optional<std::uint64_t> count(TimePoint now) {
    ++n_;
    if (n_ > 1 && now < again_) return std::nullopt;
    again_ = now + pause_;
    return n_;
  }

 private:
  Duration pause_;
  TimePoint again_{};
  std::uint64_t n_ = 0;
};

}  // namespace foretoken
