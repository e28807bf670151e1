#include "common/kv/block_pool.h"

#include <gmock/gmock.h>

namespace foretoken {
namespace {

using testing::ElementsAre;

TEST(BlockPool, ReturnsBlockWhenLastCopyDies) {
  BlockPool pool(2);
  Block first = pool.allocate();
  Block second = first.share();
  EXPECT_TRUE(first.is_shared());
  first = Block();
  EXPECT_FALSE(second.is_shared());
  EXPECT_EQ(pool.n_free(), 1);
  second = Block();
  EXPECT_EQ(pool.n_free(), 2);
}

TEST(BlockPool, MovingTransfersTheHolder) {
  BlockPool pool(1);
  Block first = pool.allocate();
  const Block second = std::move(first);
  EXPECT_FALSE(first);  // NOLINT: a moved-from block is empty by contract
  EXPECT_EQ(pool.n_holders(second.index()), 1);
}

TEST(BlockPool, GivesAnEmptyBlockWhenNoneIsFree) {
  BlockPool pool(1);
  const Block only = pool.allocate();
  EXPECT_FALSE(pool.allocate());
  EXPECT_EQ(pool.n_used(), 1);
}

TEST(BlockPool, EvictsTheBlockCachedLongest) {
  BlockPool pool(3);
  std::vector<Block> blocks;
  for (int i = 0; i < 3; ++i) pool.keep(blocks.emplace_back(pool.allocate()));
  const std::int32_t a = blocks[0].index(), b = blocks[1].index(), c = blocks[2].index();
  blocks[1] = Block();
  blocks[2] = Block();
  blocks[0] = Block();
  EXPECT_THAT(pool.cached_oldest_first(), ElementsAre(b, c, a));
  EXPECT_EQ(pool.evict_oldest(), b);
  EXPECT_EQ(pool.n_free(), 1);
  EXPECT_EQ(pool.n_cached(), 2);
}

TEST(BlockPool, HoldingACachedBlockTakesItOutOfTheLine) {
  BlockPool pool(3);
  std::vector<Block> blocks;
  for (int i = 0; i < 3; ++i) pool.keep(blocks.emplace_back(pool.allocate()));
  const std::int32_t a = blocks[0].index(), b = blocks[1].index(), c = blocks[2].index();
  blocks.clear();
  Block middle = pool.hold(b);
  EXPECT_EQ(pool.n_cached(), 2);
  EXPECT_EQ(pool.n_used(), 1);
  middle = Block();
  EXPECT_THAT(pool.cached_oldest_first(), testing::UnorderedElementsAre(a, b, c));
  EXPECT_EQ(pool.cached_oldest_first().back(), b);
}

TEST(BlockPool, ForgettingFreesACachedBlockAndOnlyUnmarksAHeldOne) {
  BlockPool pool(2);
  Block held = pool.allocate();
  Block cached = pool.allocate();
  pool.keep(held);
  pool.keep(cached);
  const std::int32_t cached_index = cached.index();
  cached = Block();
  pool.forget(cached_index);
  EXPECT_EQ(pool.n_free(), 1);
  pool.forget(held.index());
  EXPECT_EQ(pool.n_used(), 1);
  held = Block();
  EXPECT_EQ(pool.n_free(), 2);
}

TEST(BlockPoolDeathTest, ABlockMustNotOutliveItsPool) {
  EXPECT_DEATH(
      {
        Block escaped;
        BlockPool pool(1);
        escaped = pool.allocate();
      },
      "outlives");
}

}  // namespace
}  // namespace foretoken
