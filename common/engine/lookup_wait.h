// How long a pass is held back for the answers of a memory of texts. They come within a fraction of
// a millisecond, and what comes after the pass has begun is a round late. So a pass waits for them
// where the tokens they bring save more time than that; never for long. Pure: times come as
// arguments. One thread.
#pragma once

#include <optional>

#include "common/base/clock.h"

namespace foretoken {

class LookupWait {
 public:
  // Before a pass that takes so long: the longest wait for answers that save so much time; 0 where
  // that is less than they usually take.
  Duration begin(Duration saved, Duration pass, TimePoint now);
  bool is_waiting() const { return began_.has_value(); }
  // At the pass: is_owed if an answer is missing still. Returns how long it was held back.
  Duration end(bool is_owed, TimePoint now);

 private:
  Duration usual_ = std::chrono::microseconds(200);  // until the answers are there
  std::optional<TimePoint> began_;
};

}  // namespace foretoken
