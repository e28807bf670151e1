#include "kernels/cpu/parallel.h"

#include <pthread.h>
#include <sched.h>

#include "common/base/check.h"
#include "common/base/cores.h"

namespace foretoken::cpu {
namespace {

// Each member to a physical core of its own, as long as there are any.
void bind_to_core(int member) {
  const CpuList cpus = spread_over_cores(allowed_cpus());
  if (cpus.empty()) return;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<unsigned>(cpus[static_cast<std::size_t>(member) % cpus.size()]), &one);
  pthread_setaffinity_np(pthread_self(), sizeof one, &one);
}

}  // namespace

Team::Team(int n_threads, bool pin)
    : n_members_(n_threads), n_active_(n_threads), n_after_(n_threads) {
  FORETOKEN_CHECK(n_threads >= 1, "a team has at least its caller");
  returning_.set(static_cast<std::uint32_t>(n_threads));
  threads_.reserve(static_cast<std::size_t>(n_threads - 1));
  try {
    for (int member = 1; member < n_threads; ++member) {
      threads_.emplace_back([this, member, pin] {
        if (pin) bind_to_core(member);
        worker(member);
      });
    }
  } catch (...) {  // a thread cannot be started: those before it wait for a run
    end_workers();
    throw;
  }
}

Team::~Team() {
  set_size(n_members_);
  end_workers();
}

void Team::end_workers() {
  stop_ = true;
  round_.set(round_.load() + 1);
  for (std::thread& thread : threads_) thread.join();
}

void Team::set_size(int n) {
  FORETOKEN_CHECK(n >= 1 && n <= n_members_, "a run has at least the caller");
  const int before = n_active_;
  if (n == before) return;
  n_after_ = n;
  returning_.set(static_cast<std::uint32_t>(n));
  if (n < before) run([](int) {});  // the others leave at its end
  if (n > before) {
    const auto wanted = static_cast<std::uint32_t>(n - before);
    for (auto here = n_returned_.load(); here < wanted; here = n_returned_.load())
      n_returned_.wait_while(here);
    n_returned_.set(0);
  }
  n_active_ = n;
}

void Team::run_erased(Job job, void* context) {
  if (n_active_ == 1) return job(context, 0);
  job_ = job;
  context_ = context;
  round_.set(round_.load() + 1);
  job(context, 0);
  const auto begin = std::chrono::steady_clock::now();
  barrier();  // the join
  waited_ += std::chrono::steady_clock::now() - begin;
}

void Team::worker(int member) {
  std::uint32_t round = 0;
  for (;;) {
    round_.wait_while(round);
    ++round;
    if (stop_) return;
    job_(context_, member);
    const bool leaves = member >= n_after_;  // the caller may set it again after the join
    barrier();
    if (!leaves) continue;
    for (auto size = returning_.load(); static_cast<std::uint32_t>(member) >= size;
         size = returning_.load())
      returning_.wait_while(size);
    round = round_.load();  // nothing runs until all have come back
    n_returned_.add_one();
  }
}

void Team::barrier() {
  // Read before this member arrives: after the last has, the caller may set it.
  const auto n = static_cast<std::uint32_t>(n_active_);
  if (n == 1) return;
  const std::uint32_t phase = phase_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == n) {
    arrived_.store(0, std::memory_order_relaxed);
    phase_.set(phase + 1);
    return;
  }
  phase_.wait_while(phase);
}

}  // namespace foretoken::cpu
