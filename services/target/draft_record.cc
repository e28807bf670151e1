#include "services/target/draft_record.h"

#include <algorithm>

namespace foretoken {

void DraftRecord::verified(std::uint32_t n_guesses, std::uint32_t n_accepted) {
  n_guesses_ += n_guesses;
  n_accepted_ += n_accepted;
}

bool DraftRecord::judge(TimePoint now) {
  const bool is_malformed = n_malformed_ >= rules_.max_malformed;
  const std::uint32_t n_needed = n_times_ == 0 ? rules_.n_judged : rules_.n_judged_again;
  if (is_aside(now) || (!is_malformed && n_guesses_ < n_needed)) return false;
  const bool is_worthless = n_guesses_ >= n_needed &&
                            100 * n_accepted_ < std::uint64_t{rules_.least_percent} * n_guesses_;
  if (is_malformed || is_worthless) {
    reason_ = is_malformed ? std::to_string(n_malformed_) + " malformed records"
                           : std::to_string(n_accepted_) + " of " + std::to_string(n_guesses_) +
                                 " proposals accepted";
    const Duration pause = rules_.first_pause * (std::int64_t{1} << std::min(n_times_, 16u));
    aside_until_ = now + std::min(rules_.longest_pause, pause);
    ++n_times_;
  } else {
    n_times_ = 0;
  }
  n_guesses_ = n_accepted_ = n_malformed_ = 0;
  return is_aside(now);
}

Duration DraftRecord::pause_left(TimePoint now) const {
  return std::max(Duration{0}, aside_until_ - now);
}

}  // namespace foretoken
