#include "common/kv/prefix_index.h"

#include <gmock/gmock.h>

namespace foretoken {
namespace {

const std::vector<TokenId> kFirst{1, 2, 3, 4};
const std::vector<TokenId> kSecond{5, 6, 7, 8};

TEST(PrefixIndex, FindsABlockOnlyAfterItsOwnParent) {
  PrefixIndex index;
  const PrefixLink root = PrefixIndex::root(0);
  const PrefixLink first = index.publish(root, 0, kFirst, 10).link;
  index.publish(first, 0, kSecond, 11);
  ASSERT_NE(index.find(first, 0, kSecond), nullptr);
  EXPECT_EQ(index.find(first, 0, kSecond)->block, 11);
  EXPECT_EQ(index.find(root, 0, kSecond), nullptr);
}

TEST(PrefixIndex, TenantsShareNothing) {
  PrefixIndex index;
  index.publish(PrefixIndex::root(1), 1, kFirst, 10);
  EXPECT_NE(index.find(PrefixIndex::root(1), 1, kFirst), nullptr);
  EXPECT_EQ(index.find(PrefixIndex::root(2), 2, kFirst), nullptr);
}

TEST(PrefixIndex, ACollisionOfHashesFindsNothing) {
  PrefixIndex index;
  const PrefixLink root = PrefixIndex::root(1);
  index.publish(root, 1, kFirst, 10);
  // The same hash under another salt or after another parent: what a collision would look like.
  EXPECT_EQ(index.find(root, 2, kFirst), nullptr);
  EXPECT_EQ(index.find({root.hash, 7}, 1, kFirst), nullptr);
}

TEST(PrefixIndex, TheFirstOfEqualBlocksStays) {
  PrefixIndex index;
  const PrefixLink root = PrefixIndex::root(0);
  const auto first = index.publish(root, 0, kFirst, 10);
  const auto again = index.publish(root, 0, kFirst, 11);
  EXPECT_TRUE(first.is_new);
  EXPECT_FALSE(again.is_new);
  EXPECT_EQ(again.link, first.link);
  EXPECT_EQ(index.size(), 1u);
}

TEST(PrefixIndex, ErasedBlocksAreNotFoundNorAreTheirChildren) {
  PrefixIndex index;
  const PrefixLink root = PrefixIndex::root(0);
  const PrefixLink first = index.publish(root, 0, kFirst, 10).link;
  index.publish(first, 0, kSecond, 11);
  index.erase(10);
  EXPECT_EQ(index.find(root, 0, kFirst), nullptr);
  const PrefixLink republished = index.publish(root, 0, kFirst, 12).link;
  EXPECT_EQ(index.find(republished, 0, kSecond), nullptr);
  index.erase(99);
  EXPECT_EQ(index.size(), 2u);
}

}  // namespace
}  // namespace foretoken
