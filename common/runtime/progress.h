// What the work thread of a service does, since when, and how long that may take. A turn that has
// lasted longer than the bound counts as stuck; the bound grows with the turns that were measured,
// so that a model whose steps take seconds is not stuck. Written by the work thread, read from any
// thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "common/base/clock.h"
#include "common/messages/types.h"

namespace foretoken {

class Progress {
 public:
  using Activity = wire::Activity;
  // A turn may last this many times the longest recent one ...
  static constexpr int kLongestTurns = 8;
  // ... and the longest recent one is forgotten by 1/64 a turn.
  static constexpr int kForgetting = 64;

  // `floor`: the least bound (limits.stuck_s), which holds before anything was measured. Before the
  // service starts.
  void set_floor(Duration floor) {
    floor_ = floor;
    bound_ = std::max(floor_, kLongestTurns * longest_).count();
  }

  // Work thread: a turn begins, and the one before has ended.
  void begin(TimePoint now) {
    measure(now);
    begun_ = now;
    turn_.fetch_add(1, std::memory_order_relaxed);
    doing(Activity::kMessages);
    since_.store(now.time_since_epoch().count(), std::memory_order_release);
  }
  // Work thread: what this turn does from now on.
  void doing(Activity activity) { activity_.store(activity, std::memory_order_relaxed); }
  // Work thread: the turn is over, and there is nothing to do.
  void wait(TimePoint now) {
    measure(now);
    doing(Activity::kWaiting);
    since_.store(0, std::memory_order_release);
  }

  struct View {
    std::uint64_t turn = 0;
    Activity activity = Activity::kWaiting;
    Duration busy{};   // how long this turn has lasted; 0 = waiting
    Duration bound{};  // longer is stuck
    bool is_stuck() const { return busy > bound; }
  };
  View view(TimePoint now) const {
    const std::int64_t since = since_.load(std::memory_order_acquire);
    const Duration busy = since == 0 ? Duration{} : now.time_since_epoch() - Duration(since);
    return {turn_.load(std::memory_order_relaxed), activity_.load(std::memory_order_relaxed),
            std::max(busy, Duration{}), Duration(bound_.load(std::memory_order_relaxed))};
  }

 private:
  void measure(TimePoint now) {
    if (since_.load(std::memory_order_relaxed) == 0) return;
    longest_ = std::max(now - begun_, longest_ - longest_ / kForgetting);
    bound_.store(std::max(floor_, kLongestTurns * longest_).count(), std::memory_order_relaxed);
  }

  Duration floor_ = std::chrono::seconds(30);
  TimePoint begun_{};  // of the work thread, as what follows
  Duration longest_{};
  std::atomic<std::uint64_t> turn_{0};
  std::atomic<Activity> activity_{Activity::kWaiting};
  std::atomic<std::int64_t> since_{0};  // nanoseconds of the clock; 0 = waiting
  std::atomic<std::int64_t> bound_{Duration(std::chrono::seconds(30)).count()};
};

}  // namespace foretoken
