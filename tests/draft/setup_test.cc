#include "services/draft/setup.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <vector>

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

TEST(BoardOpener, SaysWhyADraftOnSeveralRanksReadsNone) {
  const auto backend = make_backend({.n_threads = 1});
  std::string why;
  EXPECT_EQ(board_opener(*backend, 2)(std::vector<std::byte>(8), why), nullptr);
  EXPECT_NE(why.find("2 ranks"), std::string::npos);
}

TEST(BoardOpener, OpensTheBoardOfAnotherBackendAndNothingElse) {
  const auto target = make_backend({.n_threads = 1});
  const auto draft = make_backend({.n_threads = 1});
  std::string why;
  const auto board = target->make_board(8, why);
  ASSERT_NE(board, nullptr) << why;
  const OpenBoard open = board_opener(*draft, 1);
  const auto view = open(board->card(), why);
  ASSERT_NE(view, nullptr) << why;
  EXPECT_EQ(view->n_entries(), 8);
  EXPECT_EQ(open(std::vector<std::byte>(8), why), nullptr);
  EXPECT_NE(why, "");
}

}  // namespace
}  // namespace foretoken
