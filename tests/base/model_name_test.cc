#include "common/base/model_name.h"

#include <gtest/gtest.h>

namespace foretoken {
namespace {

TEST(ModelName, AStarAtTheEndStandsForTheRest) {
  EXPECT_TRUE(stands_for("claude-*", "claude-sonnet-4"));
  EXPECT_TRUE(stands_for("claude-*", "claude-"));
  EXPECT_TRUE(stands_for("*", "anything"));
  EXPECT_TRUE(stands_for("gpt-4o", "gpt-4o"));
  EXPECT_FALSE(stands_for("claude-*", "claude"));
  EXPECT_FALSE(stands_for("gpt-4o", "gpt-4o-mini"));
  EXPECT_FALSE(stands_for("a*b", "axb"));  // a star elsewhere is a letter
}

TEST(ModelName, AliasesOverlapWhereOneNameCouldMeanBoth) {
  const auto meet = [](std::string_view a, std::string_view b) {
    EXPECT_EQ(overlap(a, b), overlap(b, a)) << a << " " << b;
    return overlap(a, b);
  };
  EXPECT_TRUE(meet("demo", "demo"));
  EXPECT_TRUE(meet("claude-*", "claude-sonnet"));
  EXPECT_TRUE(meet("claude-*", "claude-s*"));
  EXPECT_TRUE(meet("*", "demo"));
  EXPECT_FALSE(meet("demo", "demo-2"));
  EXPECT_FALSE(meet("claude-*", "gpt-*"));
  EXPECT_FALSE(meet("claude-*", "claude"));
}

}  // namespace
}  // namespace foretoken
