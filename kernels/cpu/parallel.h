// A team of threads for one backend: fork, barriers inside, join. Within a step members wait by
// spinning, because a step has hundreds of joins; a member that has waited for some tens of
// microseconds sleeps, because a draft and a target may share the same cores. The caller is member
// 0. One thread at a time may call run(). Members may be left out of runs for a while (team_size.h
// says when): they sleep.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/cpu/wait_word.h"

namespace foretoken::cpu {

// The half-open share of `n` items that belongs to `member` of `n_members`: contiguous, fixed,
// sizes differ by one.
struct Share {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
constexpr Share share_of(std::int64_t n, int member, int n_members) {
  return {n * member / n_members, n * (member + 1) / n_members};
}

class Team {
 public:
  // n_threads >= 1; with 1 there are no threads at all. `pin` binds members to the cores the
  // process may use. Throws std::system_error where a thread cannot be started.
  Team(int n_threads, bool pin);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int size() const { return n_active_; }  // of the runs from now on, or of this one
  int capacity() const { return n_members_; }
  // Of the runs that follow, members [0, n) take part; 1 to capacity(). Not during a run. Returns
  // when those who come back are awake.
  void set_size(int n);
  // What the caller has waited for others at the end of runs since it last asked.
  std::chrono::nanoseconds take_waited() { return std::exchange(waited_, {}); }

  // Calls body(member) on every member and returns when all have returned.
  template <class Body>
  void run(Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    run_erased([](void* context, int member) { (*static_cast<Plain*>(context))(member); },
               const_cast<void*>(static_cast<const void*>(std::addressof(body))));
  }

  // Inside run(): waits until every member has come here. Everything written before is visible
  // after.
  void barrier();

 private:
  using Job = void (*)(void* context, int member);
  void run_erased(Job job, void* context);
  void worker(int member);
  void end_workers();  // all of them wait for a run

  const int n_members_;
  int n_active_;
  Job job_ = nullptr;
  void* context_ = nullptr;
  bool stop_ = false;
  std::chrono::nanoseconds waited_{};
  int n_after_;                 // the size after this run: who is beyond it leaves at its end
  alignas(64) WaitWord round_;  // raised by run(); workers wait on it
  // Those who are left out wait on it instead, so that runs do not wake them.
  alignas(64) WaitWord returning_;                     // members below it come back
  WaitWord n_returned_;                                // of those that set_size() waits for
  alignas(64) std::atomic<std::uint32_t> arrived_{0};  // members at the current barrier
  alignas(64) WaitWord phase_;                         // raised by the last to arrive
  std::vector<std::thread> threads_;
};

}  // namespace foretoken::cpu
