#include "common/engine/runners_up.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/include/numerics.h"

namespace foretoken {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// Ids 0 to 7, each a little less likely than the one before.
std::vector<TopLogprob> eight_likely() {
  std::vector<TopLogprob> all;
  for (TokenId id = 0; id < 8; ++id)
    all.push_back({.token = id, .logprob = -0.1f * static_cast<float>(id)});
  return all;
}

TEST(RunnersUp, AreTheLikeliestBesideTheChosen) {
  EXPECT_EQ(runners_up(eight_likely(), 0, RowRule{}, StepPlan{}), (RunnersUp{1, 2, 3}));
  EXPECT_EQ(runners_up(eight_likely(), 2, RowRule{}, StepPlan{}), (RunnersUp{0, 1, 3}));
  EXPECT_EQ(runners_up(eight_likely(), 30, RowRule{}, StepPlan{}), (RunnersUp{0, 1, 2}));
}

TEST(RunnersUp, AreFewWhereARowHasFew) {
  EXPECT_EQ(runners_up({}, 0, RowRule{}, StepPlan{}), kNoRunnersUp) << "none were asked for";
  std::vector<TopLogprob> few{{.token = 5, .logprob = -1}, {.token = 4, .logprob = -2}};
  EXPECT_EQ(runners_up(few, 5, RowRule{}, StepPlan{}), (RunnersUp{4, -1, -1}));
  few.push_back({.token = -1});  // as where a vocabulary is smaller than the list
  EXPECT_EQ(runners_up(few, 5, RowRule{}, StepPlan{}), (RunnersUp{4, -1, -1}));
}

TEST(RunnersUp, FollowTheAdjustmentsOfTheirOwnRow) {
  StepPlan plan;
  plan.adjustments = {{.id = 1, .add = kNever},  // of another row
                      {.id = 2, .add = kNever},
                      {.id = 7, .add = 5}};
  EXPECT_EQ(runners_up(eight_likely(), 0, {.adjust_begin = 1, .adjust_end = 3}, plan),
            (RunnersUp{7, 1, 3}));
}

TEST(RunnersUp, AreAllowedByTheMask) {
  StepPlan plan;
  plan.masks = {0, 0b11110100};
  EXPECT_EQ(runners_up(eight_likely(), 2, {.mask_begin = 1}, plan), (RunnersUp{4, 5, 6}));
}

// Where a row is chosen with noise, what it would choose next has its own noise too.
TEST(RunnersUp, HaveTheNoiseOfTheirPosition) {
  int n_otherwise = 0;
  for (std::uint32_t position = 0; position < 50; ++position) {
    const RowRule rule{.temperature = 1, .seed = 9, .position = position};
    const RunnersUp got = runners_up(eight_likely(), 0, rule, StepPlan{});
    const auto score = [&](TokenId id) {
      return -0.1f * static_cast<float>(id) +
             gumbel(noise_word(9, 0, position, static_cast<std::uint32_t>(id)));
    };
    EXPECT_GE(score(got[0]), score(got[1]));
    EXPECT_GE(score(got[1]), score(got[2]));
    for (TokenId id = 1; id < 8; ++id)
      EXPECT_TRUE(score(id) <= score(got[2]) || std::ranges::find(got, id) != got.end());
    n_otherwise += got != RunnersUp{1, 2, 3} ? 1 : 0;
  }
  EXPECT_GT(n_otherwise, 30);
}

}  // namespace
}  // namespace foretoken
