// Decides how many members of a team take part in a pass. A member that shares its core with a busy
// process is late at every join, and the others wait for it. When more than a fifth of the time is
// spent waiting at joins, passes with one member less are compared with passes of the present size,
// by turns, and the faster size stays. If one less gains nothing, two less are tried, then four. A
// size below the full one is compared with the next larger one from time to time. Waiting alone
// decides nothing: services that interrupt the team for a moment cause it too. Members are left out
// from the last one on, and the caller always takes part. No bit of a result depends on the size.
// Pure: times are arguments, no clock is read.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <vector>

namespace foretoken::cpu {

class TeamSize {
 public:
  explicit TeamSize(int most) : most_(most), size_(most) {}

  int now() const { return is_comparing() && other_turn_ ? other_ : size_; }
  // A pass of `n_rows` rows with now() members took `time`, of which its caller waited `waited` at
  // joins.
  void passed(std::int32_t n_rows, std::chrono::nanoseconds time, std::chrono::nanoseconds waited);

 private:
  using Time = std::chrono::nanoseconds;
  struct Passes {
    int n = 0;
    Time time{};
  };
  // By rows: what passes took, of the size that holds and of the other one.
  using Compared = std::map<std::int32_t, std::array<std::vector<Time>, 2>>;

  bool is_comparing() const { return other_ != 0; }
  void watch(Time time, Time waited);
  void compare_with(int other);
  void compare(std::int32_t n_rows, Time time);
  void decide();

  const int most_;
  int size_;
  // While it watches.
  Time window_{}, window_waited_{};
  Time until_next_{};  // passes of so much time before a comparison
  Time pause_ = kFirstPause;
  int step_ = 1;                 // how many less are tried next
  bool asked_for_less_ = false;  // by the last comparison: where both are possible they take turns
  // While it compares.
  int other_ = 0;  // the other size; 0: it does not
  bool other_turn_ = false;
  int turns_ = 0;
  Passes turn_;
  Compared compared_;

  static constexpr Time kFirstPause = std::chrono::milliseconds(500);
};

}  // namespace foretoken::cpu
