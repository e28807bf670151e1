// How many members take part, on simulated machines: what a pass takes with so many
// members, and how much of it is waiting.
#include "kernels/cpu/team_size.h"

#include <gtest/gtest.h>

#include <functional>

namespace foretoken::cpu {
namespace {

using Time = std::chrono::nanoseconds;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

struct Pass {
  Time time{}, waited{};
};
using Machine = std::function<Pass(int n_members, std::int32_t n_rows)>;

// Of a run: the share of its time in passes of fewer members than `n`, and the number of passes.
struct Course {
  double below = 0;
  int n_passes = 0;
};
Course run(TeamSize& size, int n, Time span, const Machine& machine, std::int32_t most_rows = 1) {
  Time all{}, below{};
  Course course;
  for (; all < span; ++course.n_passes) {
    const std::int32_t n_rows = 1 + course.n_passes * 7 % most_rows;
    const int members = size.now();
    const Pass pass = machine(members, n_rows);
    size.passed(n_rows, pass.time, pass.waited);
    all += pass.time;
    if (members < n) below += pass.time;
  }
  course.below = static_cast<double>(below.count()) / static_cast<double>(all.count());
  return course;
}

// One core of `n` is shared with a busy loop: a pass with all members takes three times as long.
Machine beside_a_loop(int n, Time alone) {
  return [=](int members, std::int32_t n_rows) -> Pass {
    const Time whole = alone * n * (9 + n_rows) / 10 / members;
    return members < n ? Pass{whole, whole / 100} : Pass{whole * 3, whole * 2};
  };
}
Machine quiet(Time alone, int n) {
  return [=](int members, std::int32_t n_rows) -> Pass {
    const Time whole = alone * n * (9 + n_rows) / 10 / members;
    return {whole, whole / 50};
  };
}

TEST(TeamSize, AllTakePartWhereLittleIsLost) {
  TeamSize size(2);
  EXPECT_EQ(0, run(size, 2, seconds(100), quiet(milliseconds(4), 2)).below);
}

TEST(TeamSize, AMemberBesideABusyLoopIsLeftOut) {
  for (const auto alone : {microseconds(300), microseconds(4000), microseconds(60000)}) {
    TeamSize size(2);
    run(size, 2, seconds(2), beside_a_loop(2, alone));
    EXPECT_EQ(1, size.now());
    EXPECT_GE(run(size, 2, seconds(20), beside_a_loop(2, alone)).below, 0.85);
  }
}

TEST(TeamSize, ItComesBackWhenTheLoopEnds) {
  TeamSize size(2);
  run(size, 2, seconds(30), beside_a_loop(2, milliseconds(4)));
  run(size, 2, seconds(6), quiet(milliseconds(4), 2));
  EXPECT_EQ(2, size.now());
  EXPECT_LE(run(size, 2, seconds(60), quiet(milliseconds(4), 2)).below, 0.01);
}

TEST(TeamSize, PassesOfManyKindsAreComparedEachWithItsLike) {
  TeamSize size(2);
  run(size, 2, seconds(3), beside_a_loop(2, milliseconds(2)), 9);
  EXPECT_EQ(1, size.now());
}

// Services interrupt the team for a moment: much is lost, and two members are faster than one all
// the same.
TEST(TeamSize, ALossAloneIsNoReasonToLeaveOneOut) {
  TeamSize size(2);
  const Machine interrupted = [](int members, std::int32_t) -> Pass {
    return members == 2 ? Pass{milliseconds(5), milliseconds(2)} : Pass{milliseconds(8), {}};
  };
  run(size, 2, seconds(10), interrupted);
  EXPECT_LE(run(size, 2, seconds(60), interrupted).below, 0.02);
}

TEST(TeamSize, OneOfManyIsLeftOutAndNotMore) {
  TeamSize size(8);
  run(size, 8, seconds(2), beside_a_loop(8, milliseconds(4)));
  EXPECT_EQ(7, size.now());
  run(size, 8, seconds(10), quiet(milliseconds(4), 8));
  EXPECT_EQ(8, size.now());
}

TEST(TeamSize, TwoOfManyAreLeftOutWhereTwoCoresAreBusy) {
  TeamSize size(8);
  const Machine two_loops = [](int members, std::int32_t) -> Pass {
    const Time whole = Time(milliseconds(32)) / members;
    return members > 6 ? Pass{whole * 3, whole * 2} : Pass{whole, whole / 100};
  };
  run(size, 8, seconds(10), two_loops);
  EXPECT_EQ(6, size.now());
  run(size, 8, seconds(20), quiet(milliseconds(4), 8));
  EXPECT_EQ(8, size.now());
}

// A draft interrupts the team all the time; the loop ends.
TEST(TeamSize, ItComesBackThoughMuchIsLostForAnotherReason) {
  TeamSize size(8);
  const auto interrupted = [](const Machine& machine) -> Machine {
    return [=](int members, std::int32_t n_rows) {
      Pass pass = machine(members, n_rows);
      pass.waited += pass.time * 3 / 10;
      pass.time += pass.time * 3 / 10;
      return pass;
    };
  };
  run(size, 8, seconds(10), interrupted(beside_a_loop(8, milliseconds(4))));
  EXPECT_EQ(7, size.now());
  run(size, 8, seconds(40), interrupted(quiet(milliseconds(4), 8)));
  EXPECT_EQ(8, size.now());
}

// As by `docker pause`, in any pass of a comparison.
TEST(TeamSize, AStopOfTheProcessIsNoReasonToLeaveOneOutForLong) {
  for (int stopped = 0; stopped < 9; ++stopped) {
    SCOPED_TRACE(stopped);
    TeamSize size(2);
    while (size.now() == 2) size.passed(1, milliseconds(10), milliseconds(4));
    for (int pass = 0; pass < 9; ++pass)
      size.passed(1, pass == stopped ? Time(seconds(30)) : Time(milliseconds(20 / size.now())), {});
    run(size, 2, seconds(4), quiet(milliseconds(10), 2));
    EXPECT_EQ(2, size.now());
    run(size, 2, seconds(4), beside_a_loop(2, milliseconds(10)));
    EXPECT_EQ(1, size.now()) << "and compared again soon";
  }
}

// The core is busy for much longer than a pass takes: few passes are held up, for long.
TEST(TeamSize, AMemberThatHoldsFewPassesUpForLongIsLeftOut) {
  TeamSize size(8);
  int n_passes = 0;
  const Machine rarely = [&](int members, std::int32_t) -> Pass {
    const Time whole = Time(microseconds(2400)) / members;
    const bool is_held_up = members == 8 && ++n_passes % 20 == 0;
    return is_held_up ? Pass{whole * 21, whole * 20} : Pass{whole, whole / 100};
  };
  run(size, 8, seconds(2), rarely);
  EXPECT_EQ(7, size.now());
}

TEST(TeamSize, OneThreadIsAlwaysItself) {
  TeamSize size(1);
  run(size, 1, seconds(1), [](int, std::int32_t) {
    return Pass{milliseconds(9), milliseconds(8)};
  });
  EXPECT_EQ(1, size.now());
}

}  // namespace
}  // namespace foretoken::cpu
