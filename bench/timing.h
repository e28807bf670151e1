// Time as the micro benchmarks take it: wall time, or on request the processor time of the calling
// thread.
#pragma once

#include <time.h>

#include <algorithm>
#include <vector>

namespace foretoken::bench {

inline thread_local clockid_t clock_of_choice = CLOCK_MONOTONIC;

inline double now_seconds() {
  timespec t{};
  clock_gettime(clock_of_choice, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

inline double seconds_of(const auto& work) {
  const double start = now_seconds();
  work();
  return now_seconds() - start;
}

// 0 of none.
inline double median(std::vector<double> x) {
  if (x.empty()) return 0;
  std::sort(x.begin(), x.end());
  const std::size_t middle = x.size() / 2;
  return x.size() % 2 == 1 ? x[middle] : (x[middle - 1] + x[middle]) / 2;
}

}  // namespace foretoken::bench
