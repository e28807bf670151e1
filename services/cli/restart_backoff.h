// When a service that ended is started again: later and later up to a limit, at once again after a
// long good run, and no more after a number of failures where one is set. Pure: time
// comes as an argument.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>

#include "common/base/clock.h"

namespace foretoken::cli {

struct RestartRules {
  std::chrono::milliseconds first{200};
  std::chrono::milliseconds longest{5000};
  std::chrono::seconds good_run{30};  // ready for so long: what was before is forgotten
  // In a row without a good run; nothing = as often as needed.
  std::optional<std::size_t> most_restarts;
};

class RestartBackoff {
 public:
  explicit RestartBackoff(RestartRules rules) : rules_(rules) {}

  // The service ended at `now` after being ready since `ready_since` (nothing = it never was, this
  // time). Returns when to start it again, or nothing if it has used up its restarts.
  std::optional<TimePoint> ended(TimePoint now, std::optional<TimePoint> ready_since);

  std::size_t n_restarts() const { return n_restarts_; }      // ever
  std::chrono::milliseconds delay() const { return delay_; }  // the last one

 private:
  RestartRules rules_;
  std::size_t n_restarts_ = 0;
  std::size_t n_in_a_row_ = 0;
  std::chrono::milliseconds delay_{0};
};

}  // namespace foretoken::cli
