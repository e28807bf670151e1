#include "common/spec/spec_stats.h"

#include <gmock/gmock.h>

namespace foretoken {
namespace {

std::vector<PathToken> path(std::size_t n, ProposerKind source) {
  return std::vector<PathToken>(n, {1, 100, source});
}

TEST(SpecStats, FollowTheWorkedExample) {
  SpecStats stats;
  stats.record_round(path(4, ProposerKind::kDraft), 4);
  stats.record_round(path(4, ProposerKind::kDraft), 1);
  stats.record_round(path(2, ProposerKind::kNgram), 0);
  stats.record_fallback(FallbackReason::kNotWorth);
  EXPECT_EQ(stats.n_rounds, 3u);
  EXPECT_EQ(stats.n_drafted, 10u);
  EXPECT_EQ(stats.n_accepted, 5u);
  EXPECT_EQ(stats.by_depth[0], (SpecStats::Tally{3, 2}));
  EXPECT_EQ(stats.by_depth[3], (SpecStats::Tally{2, 1}));
  EXPECT_EQ(stats.by_proposer[static_cast<std::size_t>(ProposerKind::kNgram)],
            (SpecStats::Tally{2, 0}));
  EXPECT_EQ(stats.accepted_histogram[4], 1u);
  EXPECT_EQ(stats.accepted_histogram[0], 1u);
  EXPECT_EQ(stats.fallbacks[static_cast<std::size_t>(FallbackReason::kNotWorth)], 1u);
}

TEST(SpecStats, AddingUpEqualsRecordingTogether) {
  SpecStats a, b, together;
  a.record_round(path(4, ProposerKind::kDraft), 2);
  b.record_round(path(3, ProposerKind::kPrediction), 3);
  b.record_fallback(FallbackReason::kNoRoom);
  together.record_round(path(4, ProposerKind::kDraft), 2);
  together.record_round(path(3, ProposerKind::kPrediction), 3);
  together.record_fallback(FallbackReason::kNoRoom);
  a.add(b);
  EXPECT_EQ(a, together);
}

}  // namespace
}  // namespace foretoken
