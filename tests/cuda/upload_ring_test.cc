// The ring that uploads go through, against a device that reads as late as it may: what arrives is
// what was given, although the host writes on.
#include "kernels/cuda/upload_ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <vector>

namespace foretoken::cuda {
namespace {

// Copies and marks in the order in which they were queued; runs only when the host waits.
class LateDevice {
 public:
  explicit LateDevice(std::size_t bytes) : pinned_(bytes), ring_(bytes) {}

  void upload(const std::vector<unsigned char>& what) {
    const std::size_t at = ring_.take(
        what.size(), [&](int half) { queue_.push_back({.mark = half}); },
        [&](int half) { run_to_mark(half); });
    ASSERT_LE(at + what.size(), pinned_.size());
    std::copy(what.begin(), what.end(), pinned_.begin() + static_cast<std::ptrdiff_t>(at));
    queue_.push_back({.at = at, .want = what});
  }
  void run_one() {
    const Entry next = std::move(queue_.front());
    queue_.pop_front();
    if (next.mark >= 0) return;
    ++n_arrived;
    n_wrong += !std::equal(next.want.begin(), next.want.end(),
                           pinned_.begin() + static_cast<std::ptrdiff_t>(next.at));
  }
  void run_all() {
    while (!queue_.empty()) run_one();
  }
  std::size_t most() const { return ring_.most(); }
  std::size_t n_queued() const { return queue_.size(); }

  int n_arrived = 0, n_wrong = 0, n_waits = 0;

 private:
  struct Entry {
    int mark = -1;  // of this half; else a copy
    std::size_t at = 0;
    std::vector<unsigned char> want;
  };
  // Up to the mark of this half that was queued last.
  void run_to_mark(int half) {
    ++n_waits;
    const auto last = std::find_if(queue_.rbegin(), queue_.rend(),
                                   [half](const Entry& entry) { return entry.mark == half; });
    for (auto n = queue_.rend() - last; n > 0; --n) run_one();
  }

  std::vector<unsigned char> pinned_;
  UploadRing ring_;
  std::deque<Entry> queue_;
};

TEST(UploadRing, WhatArrivesIsWhatWasGiven) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937_64 dice(seed);
    LateDevice device(4096);
    int n_given = 0;
    for (; n_given < 500; ++n_given) {
      const std::size_t most = dice() % 4 == 0 ? device.most() : 100;
      std::vector<unsigned char> what(1 + dice() % most);
      for (unsigned char& byte : what) byte = static_cast<unsigned char>(dice());
      device.upload(what);
      if (dice() % 3 == 0 && device.n_queued() > 0) device.run_one();
    }
    device.run_all();
    EXPECT_EQ(device.n_arrived, n_given);
    EXPECT_EQ(device.n_wrong, 0);
    EXPECT_GT(device.n_waits, 20);
  }
}

// Two halves: there is no wait before both were filled, and then only for the older one.
TEST(UploadRing, WaitsOnlyForTheHalfItIsAboutToFill) {
  UploadRing ring(2048);
  std::vector<int> marks, waits;
  for (int i = 0; i < 8; ++i)
    ring.take(
        512, [&](int half) { marks.push_back(half); }, [&](int half) { waits.push_back(half); });
  EXPECT_EQ(marks, (std::vector<int>{0, 1, 0}));
  EXPECT_EQ(waits, (std::vector<int>{0, 1}));
}

TEST(UploadRingDeathTest, TakesNoMoreThanAHalf) {
  UploadRing ring(2048);
  const auto nothing = [](int) {};
  EXPECT_EQ(ring.take(1024, nothing, nothing), 0u);
  EXPECT_DEATH(ring.take(1025, nothing, nothing), "bytes <= half_");
}

}  // namespace
}  // namespace foretoken::cuda
