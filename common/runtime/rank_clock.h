// How long a group of ranks may take: to meet, between two signs of life of rank 0 once it serves,
// and to leave. Its owner passes it what has happened; it says when time is up. Pure: it uses no
// process and no clock, times come as arguments. For rank_launcher.cc alone.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/clock.h"

namespace foretoken {

// From the start until rank 0 has met all others: mpirun, ssh to every host, MPI_Init. Less than
// systemd grants a service (TimeoutStartSec=60), or its SIGTERM would come before our reason.
inline constexpr auto kMeeting = std::chrono::seconds(50);

class RankClock {
 public:
  // `deadline`: how long a rank may be silent.
  RankClock(int n_ranks, Duration deadline, TimePoint start);

  // A line that rank 0 says to systemd; its first one means that all have met.
  void rank0_says(std::string_view line, TimePoint now);
  void rank_left_well(TimePoint now);
  bool is_serving() const { return is_serving_; }

  // What has taken too long, in words, if anything has. n_here: ranks of this host that have come.
  std::optional<std::string> overdue(TimePoint now, std::size_t n_here) const;

 private:
  const int n_ranks_;
  const Duration deadline_;
  const TimePoint start_;
  bool have_met_ = false;
  bool is_serving_ = false;
  TimePoint last_sign_{};
  std::optional<TimePoint> leaving_since_;
};

}  // namespace foretoken
