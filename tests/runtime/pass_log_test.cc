#include "common/runtime/pass_log.h"

#include <gtest/gtest.h>

namespace foretoken {
namespace {

using namespace std::chrono_literals;

const TimePoint kBegan = TimePoint{} + 10h;

TEST(PassLog, SaysWhatEachPassWasAndHowLongAgo) {
  PassLog log;
  log.add({.began = kBegan,
           .waited = 5us,
           .computed = 70us,
           .committed = 3us,
           .n_sequences = 2,
           .n_rows = 9,
           .n_drafted = 7,
           .n_accepted = 6,
           .n_tokens = 8});
  const auto all = log.passes(kBegan + 100us, 1234);
  EXPECT_EQ((wire::Passes{.now_us = 1234,
                          .first = 0,
                          .ago_us = {100},
                          .wait_us = {5},
                          .compute_us = {70},
                          .commit_us = {3},
                          .sequences = {2},
                          .rows = {9},
                          .drafted = {7},
                          .accepted = {6},
                          .tokens = {8}}),
            all);
}

TEST(PassLog, KeepsTheLastOnesInOrderAndTheirNumbers) {
  PassLog log;
  const auto n = static_cast<std::uint32_t>(PassLog::kMost) + 5;
  for (std::uint32_t i = 0; i < n; ++i) log.add({.began = kBegan + i * 1us, .n_tokens = i});
  const auto all = log.passes(kBegan + n * 1us, 0);
  EXPECT_EQ(5u, all.first);
  ASSERT_EQ(PassLog::kMost, all.tokens.size());
  for (std::size_t i = 0; i < all.tokens.size(); ++i) {
    ASSERT_EQ(i + 5, all.tokens[i]);
    ASSERT_EQ(n - (i + 5), all.ago_us[i]);
  }
}

TEST(PassLog, LeavesOutWhatIsOlderThanAnHour) {
  PassLog log;
  EXPECT_TRUE(log.passes(kBegan, 0).ago_us.empty());
  log.add({.began = kBegan});
  log.add({.began = kBegan + 30min});
  const auto all = log.passes(kBegan + 61min, 0);
  EXPECT_EQ(1u, all.first);
  EXPECT_EQ(1u, all.ago_us.size());
  EXPECT_EQ(2u, log.passes(kBegan + 3h, 0).first);
}

}  // namespace
}  // namespace foretoken
