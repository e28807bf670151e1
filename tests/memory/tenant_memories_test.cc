#include "common/memory/tenant_memories.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace foretoken {
namespace {

using Tokens = std::vector<TokenId>;

constexpr std::uint64_t kLeast = TokenMemory::kLeastPlaces;

Tokens counting(TokenId first, std::size_t n) {
  Tokens tokens(n);
  for (TokenId& token : tokens) token = first++;
  return tokens;
}

void write(TenantMemories& memories, TenantSalt salt, const Tokens& tokens) {
  auto document = memories.open(salt);
  memories.append(document, tokens);
  memories.close(document);
}

Recollection recall(TenantMemories& memories, TenantSalt salt, const Tokens& query) {
  Recollection found;
  memories.recall(salt, query, {}, found);
  return found;
}

TEST(TenantMemories, AnswersATenantFromItsOwnTextsOnly) {
  TenantMemories memories({.n_places = 16 * kLeast, .tenant_share = 0.5});
  write(memories, 1, {1, 2, 3, 4});
  EXPECT_EQ(recall(memories, 1, {1, 2}).tokens, (Tokens{3, 4}));
  const Recollection other = recall(memories, 2, {1, 2});
  EXPECT_EQ(other.match, 0u);
  EXPECT_EQ(other.n_looked, 0u);
  EXPECT_EQ(recall(memories, 0, {1, 2}).match, 0u);
}

TEST(TenantMemories, GivesATenantItsShareAndNoMore) {
  TenantMemories memories({.n_places = 16 * kLeast, .tenant_share = 0.5});
  write(memories, 1, counting(0, 40 * kLeast));
  const TenantMemoriesStats stats = memories.stats();
  EXPECT_EQ(stats.n_places, 8 * kLeast);
  EXPECT_EQ(stats.n_tokens, 8 * kLeast);
  EXPECT_EQ(stats.n_evicted, 32 * kLeast);
  EXPECT_EQ(recall(memories, 1, counting(40 * kLeast - 20, 4)).tokens.size(), 8u);
  EXPECT_EQ(recall(memories, 1, counting(20 * kLeast, 4)).match, 0u);
}

TEST(TenantMemories, ForgetsTheTenantThatWasUsedLongestAgo) {
  TenantMemories memories({.n_places = 4 * kLeast, .tenant_share = 1});
  for (TenantSalt salt = 1; salt <= 4; ++salt) write(memories, salt, {1, 2, 3});
  EXPECT_EQ(recall(memories, 1, {1, 2}).tokens, Tokens{3});  // used again
  write(memories, 5, {1, 2, 3});
  EXPECT_EQ(recall(memories, 2, {1, 2}).match, 0u);
  for (const TenantSalt salt : {1u, 3u, 4u, 5u})
    EXPECT_EQ(recall(memories, salt, {1, 2}).tokens, Tokens{3}) << salt;
  EXPECT_EQ(memories.stats().n_evicted, 3u);
}

TEST(TenantMemories, KeepsTenantsWithOpenDocuments) {
  TenantMemories memories({.n_places = 2 * kLeast, .tenant_share = 1});
  auto first = memories.open(1);
  auto second = memories.open(2);
  memories.append(first, Tokens{1, 2, 3});
  memories.append(second, Tokens{1, 2, 4});
  write(memories, 3, {1, 2, 5});  // finds no place
  EXPECT_EQ(recall(memories, 3, {1, 2}).match, 0u);
  EXPECT_EQ(memories.stats().n_dropped, 3u);
  memories.append(first, counting(10, 3 * kLeast));  // has to do with its own
  EXPECT_EQ(recall(memories, 2, {1, 2}).tokens, Tokens{4});
  memories.close(second);
  write(memories, 3, {1, 2, 5});
  EXPECT_EQ(recall(memories, 3, {1, 2}).tokens, Tokens{5});
  EXPECT_EQ(memories.stats().n_dropped, 3u);
  memories.close(first);
}

TEST(TenantMemories, ForgetsNoTenantForPlacesThatCannotBeHad) {
  TenantMemories memories({.n_places = 4 * kLeast, .tenant_share = 1});
  write(memories, 1, {1, 2, 3});  // idle
  auto second = memories.open(2);
  memories.append(second, Tokens{1, 2, 3});
  auto third = memories.open(3);
  memories.append(third, counting(10, 2 * kLeast));  // takes all places that are left
  ASSERT_EQ(memories.stats().n_places, 4 * kLeast);
  memories.append(third, counting(10, 8 * kLeast));  // twice as many are more than the idle ones
  EXPECT_EQ(recall(memories, 1, {1, 2}).tokens, Tokens{3});
  EXPECT_EQ(memories.stats().n_tenants, 3u);
  memories.close(second);
  memories.append(third, counting(10, 8 * kLeast));
  EXPECT_EQ(recall(memories, 1, {1, 2}).match, 0u);
  EXPECT_EQ(memories.stats().n_tenants, 1u);
  memories.close(third);
}

TEST(TenantMemories, BeginsADocumentAnewWhoseTenantWasForgotten) {
  TenantMemories memories({.n_places = 4 * kLeast, .tenant_share = 1});
  auto document = memories.open(1);
  memories.append(document, Tokens{1, 2, 3});
  memories.forget(1);
  memories.append(document, Tokens{4, 5, 6});
  EXPECT_EQ(recall(memories, 1, {1, 2}).match, 0u);
  EXPECT_EQ(recall(memories, 1, {3, 4}).match, 0u);
  EXPECT_EQ(recall(memories, 1, {4, 5}).tokens, Tokens{6});
  memories.close(document);
}

TEST(TenantMemories, StaysWithinItsPlacesOverAHundredThousandDocuments) {
  std::mt19937 random(21);
  TenantMemories memories({.n_places = 64 * kLeast, .tenant_share = 0.25});
  for (int i = 0; i < 100'000; ++i)
    write(memories, random() % 1000, counting(static_cast<TokenId>(random() % 50), random() % 40));
  const TenantMemoriesStats stats = memories.stats();
  EXPECT_LE(stats.n_places, 64 * kLeast);
  EXPECT_LE(stats.n_tenants, 64u);
  EXPECT_LE(stats.size_bytes, 64 * kLeast * 29);
}

}  // namespace
}  // namespace foretoken
