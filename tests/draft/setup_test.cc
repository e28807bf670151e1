#include "services/draft/setup.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace foretoken {
namespace {

TEST(DraftsRanks, TakeTheirDevicesAsTheTargetsDo) {
  DraftSection draft;
  draft.tensor_parallel = 2;
  draft.device = "cuda";
  unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(draft_backend(draft, 0, {.n_here = 2, .index_here = 1}).device, "cuda:1");
  EXPECT_EQ(draft_ranks(draft, "draft-0").n_ranks, 2);
  setenv("CUDA_VISIBLE_DEVICES", "1", 1);
  EXPECT_EQ(draft_backend(draft, 0, {.n_here = 2, .index_here = 1}).device, "cuda:0");
  EXPECT_THROW(draft_ranks(draft, "draft-0"), FatalError);
  draft.hostfile = "/h";
  EXPECT_EQ(draft_ranks(draft, "draft-0").n_ranks, 2);
  unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST(DraftBackend, RecordsAsIsConfigured) {
  DraftSection draft;
  for (const auto& [word, record] :
       {std::pair{"auto", Record::kAuto}, {"on", Record::kOn}, {"off", Record::kOff}}) {
    draft.record = word;
    EXPECT_EQ(draft_backend(draft, 1, {}).record, record) << word;
  }
}

}  // namespace
}  // namespace foretoken
