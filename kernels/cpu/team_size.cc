#include "kernels/cpu/team_size.h"

#include <algorithm>

namespace foretoken::cpu {
namespace {

using std::chrono::milliseconds;

constexpr auto kWindow = milliseconds(40);  // of passes, in which lost time is counted
constexpr double kMuchWaited = 0.2;         // of a window
// Between two comparisons: at full size, and below it, where members are missed once the neighbour
// has gone.
constexpr auto kLongestPause = milliseconds(4000);
constexpr auto kLongestPauseOfFewer = milliseconds(1500);
// A comparison has so many turns, in which the two sizes alternate. A turn ends after two passes of
// 10 ms together, or after 25 ms, which may be one pass.
constexpr int kTurns = 6;
constexpr int kLeastPasses = 2;
constexpr auto kLeastTime = milliseconds(10);
constexpr auto kEnoughTime = milliseconds(25);
// The pause after a comparison, in times of the comparison.
constexpr int kPauseOfComparison = 8;
// The other size must be so much faster: what a comparison cannot tell apart stays as it is.
constexpr double kFaster = 1.05;

// Passes of rows that cost about the same are compared with one another.
std::int32_t kind_of(std::int32_t n_rows) {
  std::int32_t kind = n_rows;
  if (n_rows > 8)
    for (kind = 16; kind < n_rows; kind *= 2) continue;
  return kind;
}

}  // namespace

void TeamSize::passed(std::int32_t n_rows,
                      std::chrono::nanoseconds time,
                      std::chrono::nanoseconds waited) {
  if (most_ == 1) return;
  if (is_comparing())
    compare(kind_of(n_rows), time);
  else
    watch(time, waited);
}

void TeamSize::watch(Time time, Time waited) {
  until_next_ -= std::min(until_next_, time);
  window_ += time;
  window_waited_ += waited;
  if (window_ < kWindow) return;
  const bool loses = window_waited_ > window_ * kMuchWaited;
  window_ = window_waited_ = Time{};
  if (until_next_ > Time{}) return;
  const bool may_be_less = loses && size_ > 1;
  const bool asks_for_more = size_ < most_ && (!may_be_less || asked_for_less_);
  if (!asks_for_more && !may_be_less) return;
  asked_for_less_ = !asks_for_more;
  compare_with(asks_for_more ? size_ + 1 : size_ - step_);
}

void TeamSize::compare_with(int other) {
  other_ = other;
  other_turn_ = true;
  turns_ = 0;
  turn_ = {};
  compared_.clear();
  compared_time_ = {};
}

void TeamSize::compare(std::int32_t n_rows, Time time) {
  Passes& passes = compared_[n_rows][other_turn_ ? 1 : 0];
  ++passes.n;
  passes.time += time;
  ++turn_.n;
  turn_.time += time;
  compared_time_ += time;
  const bool is_enough =
      turn_.time >= kEnoughTime || (turn_.n >= kLeastPasses && turn_.time >= kLeastTime);
  if (!is_enough) return;
  turn_ = {};
  other_turn_ = !other_turn_;
  if (++turns_ == kTurns) decide();
}

// Of each kind of pass as many with one size as with the other.
void TeamSize::decide() {
  double own = 0, other = 0;
  for (const auto& [kind, both] : compared_) {
    const double n = std::min(both[0].n, both[1].n);
    if (n == 0) continue;
    own += n * static_cast<double>(both[0].time.count()) / both[0].n;
    other += n * static_cast<double>(both[1].time.count()) / both[1].n;
  }
  const bool changes = own > other * kFaster;
  // Where several are late, without one of them the others gain nothing yet.
  if (other_ < size_) step_ = !changes && size_ - 2 * step_ >= 1 ? 2 * step_ : 1;
  if (changes) size_ = other_;
  // A result that is confirmed is checked less often.
  const Time longest = size_ == most_ ? kLongestPause : kLongestPauseOfFewer;
  pause_ = changes ? kFirstPause : std::min<Time>(2 * pause_, longest);
  until_next_ = std::max<Time>(pause_, kPauseOfComparison * compared_time_);
  step_ = std::min(step_, std::max(1, size_ - 1));
  other_ = 0;
  other_turn_ = false;
}

}  // namespace foretoken::cpu
