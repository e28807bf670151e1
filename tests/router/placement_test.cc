#include "services/router/placement.h"

#include <gtest/gtest.h>

namespace foretoken {
namespace {

Worker target(std::uint64_t id,
              std::uint64_t queued_tokens,
              std::uint32_t active = 0,
              std::uint32_t free_blocks = 0) {
  Worker worker;
  worker.id = WorkerId{id};
  worker.hello = {.role = wire::Role::kTarget,
                  .fingerprints = {1, 1, 1, 1},
                  .model_name = "m",
                  .aliases = {"alias"},
                  .max_sequences = 8};
  worker.load = {.active = active, .queued_tokens = queued_tokens, .kv_blocks_free = free_blocks};
  return worker;
}

std::optional<WorkerId> place(const std::vector<Worker>& workers, const Need& need = {}) {
  std::vector<const Worker*> list;
  for (const Worker& worker : workers) list.push_back(&worker);
  return place_target(list, need);
}

TEST(Placement, FewestQueuedTokensFirst) {
  EXPECT_EQ(WorkerId{2}, place({target(1, 100), target(2, 50), target(3, 70)}));
}

TEST(Placement, CountsWhatWasPlacedSinceTheLastHeartbeat) {
  Worker busy = target(1, 0);
  busy.placed_tokens = 60;
  EXPECT_EQ(WorkerId{2}, place({busy, target(2, 50)}));
}

TEST(Placement, ThenTheEmptiestThenMostFreeBlocksThenTheLowestId) {
  EXPECT_EQ(WorkerId{2}, place({target(1, 0, 4), target(2, 0, 1)}));
  EXPECT_EQ(WorkerId{2}, place({target(1, 0, 1, 10), target(2, 0, 1, 20)}));
  EXPECT_EQ(WorkerId{1}, place({target(2, 0), target(1, 0)}));
}

TEST(Placement, OnlyTargetsOfTheModel) {
  EXPECT_EQ(std::nullopt, place({target(1, 0)}, {.model = "other"}));
  EXPECT_EQ(WorkerId{1}, place({target(1, 0)}, {.model = "m"}));
  EXPECT_EQ(WorkerId{1}, place({target(1, 0)}, {.model = "alias"}));
}

TEST(Placement, AMigrationNeedsEqualFingerprints) {
  Worker other = target(1, 0);
  other.hello.fingerprints.numerics = 2;
  const wire::Hello like = target(9, 0).hello;
  EXPECT_EQ(std::nullopt, place({other}, {.like = &like}));
  EXPECT_EQ(WorkerId{2}, place({other, target(2, 1000)}, {.like = &like}));
}

TEST(Placement, NotTheOneThatJustRefused) {
  const std::vector<WorkerId> first{WorkerId{1}}, both{WorkerId{1}, WorkerId{2}};
  EXPECT_EQ(WorkerId{2}, place({target(1, 0), target(2, 500)}, {.not_these = first}));
  EXPECT_EQ(std::nullopt, place({target(1, 0)}, {.not_these = first}));
  EXPECT_EQ(std::nullopt, place({target(1, 0), target(2, 0)}, {.not_these = both}));
}

TEST(Placement, ATokenizerOfTheVocabularyAndAnotherThanTheOneThatFailedIfThereIsOne) {
  Worker a, b;
  a.id = WorkerId{1};
  b.id = WorkerId{2};
  a.hello.fingerprints.vocabulary = b.hello.fingerprints.vocabulary = 7;
  const std::vector<const Worker*> both{&a, &b};
  EXPECT_EQ(WorkerId{1}, place_tokenizer(both, 7, std::nullopt));
  EXPECT_EQ(WorkerId{2}, place_tokenizer(both, 7, WorkerId{1}));
  EXPECT_EQ(WorkerId{1}, place_tokenizer(std::vector<const Worker*>{&a}, 7, WorkerId{1}));
  EXPECT_EQ(std::nullopt, place_tokenizer(both, 8, std::nullopt));
}

}  // namespace
}  // namespace foretoken
