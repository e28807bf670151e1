#include "services/cli/restart_backoff.h"

#include <algorithm>

namespace foretoken::cli {

std::optional<TimePoint> RestartBackoff::ended(TimePoint now,
                                               std::optional<TimePoint> ready_since) {
  if (ready_since && now - *ready_since >= rules_.good_run) n_in_a_row_ = 0;
  if (rules_.most_restarts && n_in_a_row_ >= *rules_.most_restarts) return std::nullopt;
  delay_ = n_in_a_row_ == 0 ? std::min(rules_.first, rules_.longest)
                            : std::min(2 * delay_, rules_.longest);
  ++n_in_a_row_;
  ++n_restarts_;
  return now + delay_;
}

}  // namespace foretoken::cli
