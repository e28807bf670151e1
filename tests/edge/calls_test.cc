// How many requests of one call are at the router at a time.
#include "services/edge/calls.h"

#include <gtest/gtest.h>

namespace foretoken::edge {
namespace {

TEST(CallLimits, LeaveHalfOfTheModelsPlacesForOthers) {
  const CallLimits limits{.of_models = {{"chat", {"chat", "gpt-*"}, 100}, {"one", {"one"}, 1}},
                          .of_all = 4100,
                          .default_model = "chat"};
  EXPECT_EQ(50u, limits.most_at_a_time("gpt-4"));
  EXPECT_EQ(1u, limits.most_at_a_time("one"));
  EXPECT_EQ(50u, limits.most_at_a_time(""));
  EXPECT_EQ(50u, limits.most_at_a_time("default"));
  EXPECT_EQ(2050u, limits.most_at_a_time("of another host"));
}

}  // namespace
}  // namespace foretoken::edge
