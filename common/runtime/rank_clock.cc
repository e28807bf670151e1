#include "common/runtime/rank_clock.h"

#include "common/runtime/rank_group.h"

namespace foretoken {

RankClock::RankClock(int n_ranks, Duration deadline, TimePoint start)
    : n_ranks_(n_ranks), deadline_(deadline), start_(start) {}

void RankClock::rank0_says(std::string_view line, TimePoint now) {
  have_met_ = true;
  if (line == "READY=1") is_serving_ = true;
  if (line == "WATCHDOG=1" || line == "READY=1") last_sign_ = now;
}

void RankClock::rank_left_well(TimePoint now) { leaving_since_ = leaving_since_.value_or(now); }

std::optional<std::string> RankClock::overdue(TimePoint now, std::size_t n_here) const {
  if (leaving_since_) {
    if (now - *leaving_since_ > kGoodbye) return "not all ranks have ended";
    return std::nullopt;
  }
  if (!have_met_ && now - start_ > kMeeting)
    return "the ranks have not connected within " + std::to_string(kMeeting.count()) +
           " s of the start; on this host connected: " + std::to_string(n_here) + " of " +
           std::to_string(n_ranks_);
  // Rank 0 gives signs four times within the deadline, and none while it waits for another rank:
  // that wait ends first, and its message names the rank.
  const Duration longest_silence = deadline_ + deadline_ / 4 + std::chrono::milliseconds(250);
  if (is_serving_ && now - last_sign_ > longest_silence) return "rank 0 is silent";
  return std::nullopt;
}

}  // namespace foretoken
