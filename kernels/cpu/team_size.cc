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
// A busy core holds a pass up for at most about so long. Of one that takes longer, and longer than
// three of its kind, no more counts: the process was stopped in it, as by `docker pause`.
constexpr auto kLongestHeldUp = milliseconds(100);
constexpr int kLongestOfShortest = 3;
// The other size must be so much faster: what a comparison cannot tell apart stays as it is.
constexpr double kFaster = 1.05;

// Passes of rows that cost about the same are compared with one another.
std::int32_t kind_of(std::int32_t n_rows) {
  std::int32_t kind = n_rows;
  if (n_rows > 8)
    for (kind = 16; kind < n_rows; kind *= 2) continue;
  return kind;
}

using Times = std::vector<std::chrono::nanoseconds>;

// How much of a pass of this kind counts at most. There is one at least.
std::chrono::nanoseconds longest_of(const std::array<Times, 2>& both) {
  auto shortest = std::chrono::nanoseconds::max();
  for (const Times& passes : both)
    for (const auto time : passes) shortest = std::min(shortest, time);
  return std::max<std::chrono::nanoseconds>(kLongestHeldUp, kLongestOfShortest * shortest);
}

std::chrono::nanoseconds sum_of(const Times& passes, std::chrono::nanoseconds longest) {
  std::chrono::nanoseconds sum{};
  for (const auto time : passes) sum += std::min(time, longest);
  return sum;
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
}

void TeamSize::compare(std::int32_t n_rows, Time time) {
  compared_[n_rows][other_turn_ ? 1 : 0].push_back(time);
  ++turn_.n;
  turn_.time += time;
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
  Time compared{};
  for (const auto& [kind, both] : compared_) {
    const Time longest = longest_of(both);
    const std::array<Time, 2> sums{sum_of(both[0], longest), sum_of(both[1], longest)};
    compared += sums[0] + sums[1];
    if (both[0].empty() || both[1].empty()) continue;
    const auto n = static_cast<double>(std::min(both[0].size(), both[1].size()));
    own += n * static_cast<double>(sums[0].count()) / static_cast<double>(both[0].size());
    other += n * static_cast<double>(sums[1].count()) / static_cast<double>(both[1].size());
  }
  const bool changes = own > other * kFaster;
  // Where several are late, without one of them the others gain nothing yet.
  if (other_ < size_) step_ = !changes && size_ - 2 * step_ >= 1 ? 2 * step_ : 1;
  if (changes) size_ = other_;
  // A result that is confirmed is checked less often.
  const Time longest = size_ == most_ ? kLongestPause : kLongestPauseOfFewer;
  pause_ = changes ? kFirstPause : std::min<Time>(2 * pause_, longest);
  until_next_ = std::max<Time>(pause_, kPauseOfComparison * compared);
  step_ = std::min(step_, std::max(1, size_ - 1));
  other_ = 0;
  other_turn_ = false;
}

}  // namespace foretoken::cpu
