#include "common/base/rare_warning.h"

#include <gtest/gtest.h>

namespace foretoken {
namespace {

using std::chrono::seconds;

TEST(RareWarning, IsLoggedAtFirstAndThenOnceInEachPauseWithTheCountOfAll) {
  RareWarning warning(seconds(60));
  const TimePoint start{};
  EXPECT_EQ(warning.count(start), 1u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(warning.count(start + seconds(59)), std::nullopt);
  EXPECT_EQ(warning.count(start + seconds(60)), 102u);
  EXPECT_EQ(warning.count(start + seconds(119)), std::nullopt);
  EXPECT_EQ(warning.count(start + seconds(500)), 104u);
}

}  // namespace
}  // namespace foretoken
