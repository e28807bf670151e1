#include "common/kv/kv_cache.h"

#include <gmock/gmock.h>

#include <numeric>

#include "common/kv/invariants.h"

namespace foretoken {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr SeqId kA{1}, kB{2}, kC{3};

std::vector<TokenId> tokens(std::size_t n, TokenId first = 100) {
  std::vector<TokenId> out(n);
  std::iota(out.begin(), out.end(), first);
  return out;
}

KvCacheConfig small(std::int32_t n_blocks) { return {.n_blocks = n_blocks, .block_tokens = 4}; }

std::vector<TokenId> joined(std::vector<TokenId> head, const std::vector<TokenId>& tail) {
  head.insert(head.end(), tail.begin(), tail.end());
  return head;
}

// What of its text the cache lacks.
void feed(KvCache& cache, SeqId seq, std::span<const TokenId> text) {
  const auto n = static_cast<std::uint32_t>(text.size()) - cache.length(seq);
  auto reservation = cache.reserve(seq, n);
  ASSERT_TRUE(reservation.ok()) << reservation.error().message;
  reservation->commit(n, text);
  EXPECT_THAT(kv_violations(cache.snapshot()), IsEmpty());
}

TEST(KvCache, ReservesSlotsInTableOrder) {
  KvCache cache(small(4));
  ASSERT_TRUE(cache.open(kA, tokens(6), 0).ok());
  auto reservation = cache.reserve(kA, 6);
  ASSERT_TRUE(reservation.ok());
  const auto table = cache.block_table(kA);
  ASSERT_EQ(table.size(), 2u);
  EXPECT_EQ(reservation->first_position(), 0u);
  EXPECT_THAT(reservation->slots(), ElementsAre(table[0] * 4, table[0] * 4 + 1, table[0] * 4 + 2,
                                                table[0] * 4 + 3, table[1] * 4, table[1] * 4 + 1));
  EXPECT_THAT(reservation->copies(), IsEmpty());
}

TEST(KvCache, CommittingFewerTokensSendsTheRestHome) {
  KvCache cache(small(4));
  ASSERT_TRUE(cache.open(kA, {}, 0).ok());
  auto reservation = cache.reserve(kA, 9);
  EXPECT_EQ(cache.free_blocks(), 1);
  reservation->commit(2, tokens(2));
  EXPECT_EQ(cache.length(kA), 2u);
  EXPECT_EQ(cache.block_table(kA).size(), 1u);
  EXPECT_EQ(cache.free_blocks(), 3);
}

TEST(KvCache, AReservationThatDiesGivesEverythingBack) {
  KvCache cache(small(4));
  ASSERT_TRUE(cache.open(kA, {}, 0).ok());
  feed(cache, kA, tokens(3));
  { auto dropped = cache.reserve(kA, 9); }
  EXPECT_EQ(cache.length(kA), 3u);
  EXPECT_EQ(cache.free_blocks(), 3);
  EXPECT_THAT(kv_violations(cache.snapshot()), IsEmpty());
}

TEST(KvCache, RefusesWithoutChangingAnythingWhenBlocksLack) {
  KvCache cache(small(2));
  ASSERT_TRUE(cache.open(kA, {}, 0).ok());
  feed(cache, kA, tokens(3));
  const auto refused = cache.reserve(kA, 6);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(cache.free_blocks(), 1);
  EXPECT_EQ(cache.blocks_needed(kA, 6), 2);
  EXPECT_TRUE(cache.reserve(kA, 5).ok());
}

TEST(KvCache, AClosedPromptIsFoundAgainInWholeBlocksAndNeverEntirely) {
  for (const std::uint32_t n : {3u, 4u, 5u, 8u, 9u, 11u}) {
    KvCache cache(small(8));
    ASSERT_TRUE(cache.open(kA, tokens(n), 0).ok());
    feed(cache, kA, tokens(n));
    cache.close(kA);
    EXPECT_EQ(cache.open(kB, tokens(n), 0).value(), (n - 1) / 4 * 4) << "prompt of " << n;
    EXPECT_EQ(cache.length(kB), (n - 1) / 4 * 4);
    EXPECT_EQ(cache.stats().n_hit_tokens, (n - 1) / 4 * 4);
    EXPECT_THAT(kv_violations(cache.snapshot()), IsEmpty());
  }
}

TEST(KvCache, ARunningSequenceSharesItsFullBlocks) {
  KvCache cache(small(8));
  ASSERT_TRUE(cache.open(kA, tokens(9), 0).ok());
  feed(cache, kA, tokens(9));
  EXPECT_EQ(cache.open(kB, tokens(9), 0).value(), 8u);
  EXPECT_EQ(cache.block_table(kA)[0], cache.block_table(kB)[0]);
  EXPECT_EQ(cache.stats().n_used, 3);
  feed(cache, kB, tokens(9));
  EXPECT_NE(cache.block_table(kA)[2], cache.block_table(kB)[2]);
}

TEST(KvCache, WhatOpenWouldFindIsHeldOrIdle) {
  KvCache cache(small(8));
  ASSERT_TRUE(cache.open(kA, tokens(9), 0).ok());
  feed(cache, kA, tokens(9));
  EXPECT_EQ(cache.find_prefix(tokens(9), 0).n_tokens, 8u);
  EXPECT_EQ(cache.find_prefix(tokens(9), 0).n_idle_blocks, 0);
  cache.close(kA);
  EXPECT_EQ(cache.find_prefix(tokens(9), 0).n_idle_blocks, 2);
  EXPECT_EQ(cache.find_prefix(tokens(8), 0).n_tokens, 4u);
  EXPECT_EQ(cache.find_prefix(tokens(9), 1).n_tokens, 0u);
  const std::int32_t n_free = cache.free_blocks();
  ASSERT_TRUE(cache.open(kB, tokens(9), 0).ok());
  EXPECT_EQ(cache.free_blocks(), n_free - 2);
}

TEST(KvCache, OtherTenantsAndOtherTextsFindNothing) {
  KvCache cache(small(8));
  ASSERT_TRUE(cache.open(kA, tokens(9), 7).ok());
  feed(cache, kA, tokens(9));
  EXPECT_EQ(cache.open(kB, tokens(9), 8).value(), 0u);
  EXPECT_EQ(cache.open(kC, tokens(9, 101), 7).value(), 0u);
}

TEST(KvCache, PrefixCachingCanBeOff) {
  KvCache cache({.n_blocks = 4, .block_tokens = 4, .prefix_cache = PrefixCaching::kOff});
  ASSERT_TRUE(cache.open(kA, tokens(9), 0).ok());
  feed(cache, kA, tokens(9));
  cache.close(kA);
  EXPECT_EQ(cache.stats().n_cached, 0);
  EXPECT_EQ(cache.open(kB, tokens(9), 0).value(), 0u);
}

TEST(KvCache, EvictsTheTailOfATextBeforeItsBeginning) {
  KvCache cache(small(3));
  ASSERT_TRUE(cache.open(kA, tokens(12), 0).ok());
  feed(cache, kA, tokens(12));
  cache.close(kA);
  EXPECT_EQ(cache.free_blocks(), 3);
  ASSERT_TRUE(cache.open(kB, {}, 0).ok());
  feed(cache, kB, tokens(1, 500));
  EXPECT_EQ(cache.stats().n_evicted_blocks, 1u);
  EXPECT_EQ(cache.open(kC, tokens(12), 0).value(), 8u);
}

TEST(KvCache, AForkCopiesTheSharedTailWhenItWrites) {
  KvCache cache(small(8));
  ASSERT_TRUE(cache.open(kA, {}, 0).ok());
  feed(cache, kA, tokens(6));
  ASSERT_TRUE(cache.fork(kA, kB).ok());
  EXPECT_EQ(cache.blocks_needed(kB, 1), 1);
  const std::int32_t shared = cache.block_table(kA)[1];
  auto child = cache.reserve(kB, 1);
  ASSERT_TRUE(child.ok());
  EXPECT_THAT(child->copies(), ElementsAre(BlockCopy{shared, cache.block_table(kB)[1]}));
  EXPECT_NE(cache.block_table(kB)[1], shared);
  // The source stays untouchable until the copy was surely made.
  EXPECT_EQ(cache.blocks_needed(kA, 1), 1);
  child->commit(1, joined(tokens(6), tokens(1, 900)));
  EXPECT_EQ(cache.blocks_needed(kA, 1), 0);
  EXPECT_THAT(kv_violations(cache.snapshot()), IsEmpty());
}

TEST(KvCache, ARolledBackCopyPutsTheOriginalBack) {
  KvCache cache(small(8));
  ASSERT_TRUE(cache.open(kA, {}, 0).ok());
  feed(cache, kA, tokens(6));
  ASSERT_TRUE(cache.fork(kA, kB).ok());
  { auto dropped = cache.reserve(kB, 3); }
  EXPECT_EQ(cache.block_table(kB)[1], cache.block_table(kA)[1]);
  EXPECT_EQ(cache.stats().n_used, 2);
  EXPECT_THAT(kv_violations(cache.snapshot()), IsEmpty());
}

TEST(KvCache, TruncatesToAnyPositionAndRewritesFromThere) {
  KvCache cache(small(8));
  ASSERT_TRUE(cache.open(kA, {}, 0).ok());
  feed(cache, kA, tokens(11));
  cache.truncate(kA, 6);
  EXPECT_EQ(cache.block_table(kA).size(), 2u);
  EXPECT_THAT(kv_violations(cache.snapshot()), IsEmpty());
  feed(cache, kA, joined(tokens(6), tokens(2, 700)));
  // The rewritten block is found with its new contents, and no longer with the old.
  EXPECT_EQ(cache.open(kB, tokens(11), 0).value(), 4u);
  EXPECT_EQ(cache.open(kC, joined(tokens(6), tokens(3, 700)), 0).value(), 8u);
  EXPECT_THAT(kv_violations(cache.snapshot()), IsEmpty());
}

TEST(KvCache, TruncatingOneOfTwoSharersLeavesTheOtherAlone) {
  KvCache cache(small(8));
  ASSERT_TRUE(cache.open(kA, {}, 0).ok());
  feed(cache, kA, tokens(8));
  ASSERT_TRUE(cache.fork(kA, kB).ok());
  cache.truncate(kB, 5);
  feed(cache, kB, joined(tokens(5), tokens(3, 700)));
  EXPECT_NE(cache.block_table(kA)[1], cache.block_table(kB)[1]);
  EXPECT_EQ(cache.open(kC, tokens(9), 0).value(), 8u);
}

TEST(KvCache, OthersFindAForkThatPublishesAndNoOther) {
  KvCache cache(small(8));
  ASSERT_TRUE(cache.open(kA, {}, 0).ok());
  feed(cache, kA, tokens(5));
  ASSERT_TRUE(cache.fork(kA, kB, Publishing::kOff).ok());
  const auto text = joined(tokens(5), tokens(4, 700));
  feed(cache, kB, std::vector(text.begin(), text.begin() + 8));
  EXPECT_EQ(cache.open(kC, text, 0).value(), 4u) << "the parent's block";
  cache.close(kC);
  // What it becomes publishes what it has.
  cache.close(kA);
  ASSERT_TRUE(cache.fork(kB, kA).ok());
  cache.close(kB);
  feed(cache, kA, text);
  EXPECT_EQ(cache.open(kC, text, 0).value(), 8u);
  EXPECT_THAT(kv_violations(cache.snapshot()), IsEmpty());
}

// So what holds many of them need not hold a text for each.
TEST(KvCache, AForkThatPublishesNothingNeedsNoText) {
  KvCache cache(small(8));
  ASSERT_TRUE(cache.open(kA, {}, 0).ok());
  feed(cache, kA, tokens(5));
  ASSERT_TRUE(cache.fork(kA, kB, Publishing::kOff).ok());
  cache.reserve(kB, 6).value().commit(6, {});
  EXPECT_EQ(cache.length(kB), 11u);
  // What it becomes says what its blocks hold.
  cache.close(kA);
  ASSERT_TRUE(cache.fork(kB, kA).ok());
  cache.close(kB);
  const auto text = joined(tokens(5), tokens(7, 700));
  feed(cache, kA, text);
  EXPECT_EQ(cache.open(kC, joined(text, tokens(1)), 0).value(), 12u);
  EXPECT_THAT(kv_violations(cache.snapshot()), IsEmpty());
}

// What it has not published yet is published with the first tokens that are kept.
TEST(KvCache, ARollbackOfAForkPublishesNothing) {
  KvCache cache(small(8));
  ASSERT_TRUE(cache.open(kA, {}, 0).ok());
  ASSERT_TRUE(cache.fork(kA, kB, Publishing::kOff).ok());
  feed(cache, kB, tokens(6));
  ASSERT_TRUE(cache.fork(kB, kC).ok());
  { auto dropped = cache.reserve(kC, 1); }
  EXPECT_TRUE(cache.snapshot().prefixes.empty());
  feed(cache, kC, joined(tokens(6), tokens(1, 900)));
  EXPECT_EQ(cache.snapshot().prefixes.size(), 1u);
}

TEST(KvCache, ErrorsNameTheSequence) {
  KvCache cache(small(2));
  ASSERT_TRUE(cache.open(kA, {}, 0).ok());
  EXPECT_THAT(cache.open(kA, {}, 0).error().message, testing::HasSubstr("1"));
  EXPECT_EQ(cache.fork(kB, kC).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(cache.fork(kA, kA).error().code, ErrorCode::kInvalidRequest);
}

TEST(KvStats, UsageIsANumberFromTheStart) {
  EXPECT_EQ(KvStats{}.usage(), 0.0);
  KvCache cache(small(4));
  ASSERT_TRUE(cache.open(kA, {}, 0).ok());
  feed(cache, kA, tokens(4));
  EXPECT_DOUBLE_EQ(cache.stats().usage(), 0.25);
}

}  // namespace
}  // namespace foretoken
