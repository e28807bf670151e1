// The time that passed while its owner looked at it: of a longer pause between two looks no more
// than `most` counts. For a patience with others: a process that was stopped, or had no processor,
// would take its own pause for a silence of all of them. While it waits the owner looks at least
// once in `most`. Its times are compared with one another only. One thread.
#pragma once

#include <algorithm>

#include "common/base/clock.h"

namespace foretoken {

class RunningClock {
 public:
  explicit RunningClock(Duration most) : most_(most) {}

  TimePoint at(TimePoint now) {
    time_ += std::clamp(now - last_look_, Duration{}, most_);
    last_look_ = std::max(last_look_, now);
    return time_;
  }

 private:
  Duration most_;
  TimePoint time_{};
  TimePoint last_look_{};
};

}  // namespace foretoken
