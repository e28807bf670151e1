// A number that threads wait on: some spinning, then asleep. std::atomic::wait is not it: before
// it sleeps, libstdc++ gives the core up and takes it back several times. Two threads that have
// come to one core then take turns on it and never sleep, and a scheduler moves a thread to an idle
// core mostly when it wakes.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace foretoken::cpu {

class WaitWord {
 public:
  std::uint32_t load(std::memory_order order = std::memory_order_seq_cst) const {
    return value_.load(order);
  }

  // Stores, and wakes all that wait. Costs no call of the kernel where none is asleep.
  void set(std::uint32_t value) {
    // With release alone the processor may read the number of sleepers before the value is written,
    // find none, and return: a thread that read the old value just before then never wakes.
    value_.store(value, std::memory_order_seq_cst);
    wake_sleepers();
  }
  // The same, for several that raise it.
  void add_one() {
    value_.fetch_add(1, std::memory_order_seq_cst);
    wake_sleepers();
  }

  // Returns when the value is no longer `old`, which may be at once. Everything written before
  // set() is visible then.
  void wait_while(std::uint32_t old) {
    for (int i = 0; i < kSpins; ++i) {
      if (load(std::memory_order_acquire) != old) return;
      relax();
    }
    n_sleepers_.fetch_add(1, std::memory_order_seq_cst);
    while (load(std::memory_order_seq_cst) == old) sleep_while(old);
    n_sleepers_.fetch_sub(1, std::memory_order_relaxed);
  }

 private:
  // Pauses before a thread sleeps: about 50 us, longer than the gap between two ops of a step and
  // far shorter than a time slice of another process.
  static constexpr int kSpins = 1500;

  static void relax() {
#if defined(__x86_64__)
    _mm_pause();
#endif
  }
  void sleep_while(std::uint32_t old) {
    ::syscall(SYS_futex, address(), FUTEX_WAIT_PRIVATE, old, nullptr, nullptr, 0);
  }
  void wake_sleepers() {
    if (n_sleepers_.load(std::memory_order_seq_cst) == 0) return;
    ::syscall(SYS_futex, address(), FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
  }
  std::uint32_t* address() { return reinterpret_cast<std::uint32_t*>(&value_); }

  std::atomic<std::uint32_t> value_{0};
  static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));
  std::atomic<std::uint32_t> n_sleepers_{0};
};

}  // namespace foretoken::cpu
