#include "common/kv/invariants.h"

#include <gmock/gmock.h>

#include <functional>

namespace foretoken {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

// Two sequences that share a full published block, one cached block, one free block, one
// reservation.
class KvInvariants : public testing::Test {
 protected:
  KvInvariants() {
    EXPECT_TRUE(cache_.open(SeqId{3}, std::vector<TokenId>{9, 9, 9, 9}, 0).ok());
    feed(SeqId{3}, {9, 9, 9, 9});
    cache_.close(SeqId{3});
    EXPECT_TRUE(cache_.open(SeqId{1}, std::vector<TokenId>{1, 2, 3, 4, 5}, 0).ok());
    feed(SeqId{1}, {1, 2, 3, 4, 5});
    EXPECT_TRUE(cache_.open(SeqId{2}, std::vector<TokenId>{1, 2, 3, 4, 6}, 0).ok());
    held_ = cache_.reserve(SeqId{2}, 2).value();
    valid_ = cache_.snapshot();
  }
  void feed(SeqId seq, const std::vector<TokenId>& text) {
    const auto n = static_cast<std::uint32_t>(text.size());
    cache_.reserve(seq, n)->commit(n, text);
  }
  std::vector<std::string> after(const std::function<void(KvSnapshot&)>& damage) const {
    KvSnapshot damaged = valid_;
    damage(damaged);
    return kv_violations(damaged, texts_);
  }
  std::vector<std::string> after(const std::function<void(KvTexts&)>& damage) const {
    KvTexts damaged = texts_;
    damage(damaged);
    return kv_violations(valid_, damaged);
  }
  KvSnapshot::BlockState& state(KvSnapshot& s, std::int32_t block) const {
    return s.blocks[static_cast<std::size_t>(block)];
  }

  KvCache cache_{{.n_blocks = 5, .block_tokens = 4}};
  Reservation held_;
  KvSnapshot valid_;
  KvTexts texts_{{SeqId{1}, {1, 2, 3, 4, 5}}, {SeqId{2}, {1, 2, 3, 4}}};
};

TEST_F(KvInvariants, HoldForTheLedgerItself) {
  EXPECT_THAT(kv_violations(valid_, texts_), IsEmpty());
  ASSERT_EQ(valid_.free_list.size(), 1u);
  ASSERT_EQ(valid_.cached.size(), 1u);
  ASSERT_EQ(valid_.sequences.size(), 2u);
  ASSERT_EQ(valid_.sequences[0].blocks[0], valid_.sequences[1].blocks[0]);
}

TEST_F(KvInvariants, SeeALeakedBlock) {
  EXPECT_THAT(after([](KvSnapshot& s) { s.free_list.clear(); }), Contains(HasSubstr("leaked")));
}

TEST_F(KvInvariants, SeeABlockInTwoPlaces) {
  EXPECT_THAT(after([](KvSnapshot& s) { s.free_list.push_back(s.cached[0]); }),
              Contains(HasSubstr("2 places")));
}

TEST_F(KvInvariants, SeeAHeldBlockOnTheFreeList) {
  EXPECT_THAT(after([](KvSnapshot& s) { s.free_list.push_back(s.sequences[0].blocks[1]); }),
              Contains(HasSubstr("free list but held")));
}

TEST_F(KvInvariants, SeeACachedBlockNobodyWantsKept) {
  EXPECT_THAT(after([this](KvSnapshot& s) { state(s, s.cached[0]).is_kept = false; }),
              Contains(HasSubstr("is cached but")));
}

TEST_F(KvInvariants, SeeAWrongHolderCount) {
  EXPECT_THAT(after([this](KvSnapshot& s) { ++state(s, s.sequences[0].blocks[0]).n_holders; }),
              Contains(HasSubstr("counts 3 holders")));
}

TEST_F(KvInvariants, SeeATableOfTheWrongLength) {
  EXPECT_THAT(after([](KvSnapshot& s) { s.sequences[0].reserved = 4; }),
              Contains(HasSubstr("2 blocks for 9 positions")));
}

TEST_F(KvInvariants, SeeABlockTwiceInATable) {
  EXPECT_THAT(after([](KvSnapshot& s) { s.sequences[0].blocks[1] = s.sequences[0].blocks[0]; }),
              Contains(HasSubstr("twice in its table")));
}

TEST_F(KvInvariants, SeeALengthThatIsNotTheTokens) {
  EXPECT_THAT(after([](KvTexts& texts) { texts[SeqId{1}].pop_back(); }),
              Contains(HasSubstr("5 and 4 tokens")));
}

TEST_F(KvInvariants, SeeASequenceTwice) {
  EXPECT_THAT(after([](KvSnapshot& s) { s.sequences[1].seq = s.sequences[0].seq; }),
              Contains(HasSubstr("listed twice")));
}

TEST_F(KvInvariants, SeeABlockSharedAfterDifferentTokens) {
  EXPECT_THAT(after([](KvTexts& texts) { texts[SeqId{2}][2] = 77; }),
              Contains(HasSubstr("after different tokens")));
}

TEST_F(KvInvariants, SeeAWriteToASharedBlock) {
  EXPECT_THAT(after([this](KvSnapshot& s) { ++state(s, s.sequences[1].blocks[1]).n_holders; }),
              Contains(HasSubstr("may write to")));
}

TEST_F(KvInvariants, SeeABlockThatDoesNotExist) {
  EXPECT_THAT(after([](KvSnapshot& s) { s.sequences[0].blocks[1] = 5; }),
              Contains(HasSubstr("does not exist")));
}

TEST_F(KvInvariants, SeeACopyWithoutReservation) {
  EXPECT_THAT(after([](KvSnapshot& s) { s.sequences[0].copy_source = s.sequences[0].blocks[0]; }),
              Contains(HasSubstr("without a reservation")));
}

TEST_F(KvInvariants, SeeAKeptBlockThatIsNotPublished) {
  EXPECT_THAT(after([](KvSnapshot& s) { s.prefixes.clear(); }),
              Contains(HasSubstr("kept but not published")));
}

TEST_F(KvInvariants, SeeAPublishedBlockThatIsNotFull) {
  EXPECT_THAT(after([](KvSnapshot& s) { s.prefixes[0].tokens.pop_back(); }),
              Contains(HasSubstr("not full")));
}

TEST_F(KvInvariants, SeeAPublishedBlockWithOtherTokens) {
  EXPECT_THAT(after([](KvSnapshot& s) { s.prefixes[1].tokens[0] = 77; }),
              Contains(HasSubstr("published with other tokens")));
}

TEST_F(KvInvariants, SeeASerialUsedTwice) {
  EXPECT_THAT(after([](KvSnapshot& s) { s.prefixes[1].link.serial = s.prefixes[0].link.serial; }),
              Contains(HasSubstr("used twice")));
}

TEST_F(KvInvariants, SeeAParentYoungerThanItsChild) {
  EXPECT_THAT(after([](KvSnapshot& s) { s.prefixes[0].parent_serial = 100; }),
              Contains(HasSubstr("older than its parent")));
}

}  // namespace
}  // namespace foretoken
