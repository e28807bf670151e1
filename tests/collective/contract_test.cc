// What every Collective promises, with 1, 2 and 4 ranks: rank order, every rank the same bits, ties
// to the smaller id.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "tests/collective/contract.h"

namespace foretoken::test {
namespace {

// What rank `rank` brings: numbers whose sum depends on the order of additions.
std::vector<float> part_of(int rank, std::size_t n) {
  std::mt19937 random(static_cast<unsigned>(rank) * 7919u + 3u);
  std::uniform_real_distribution<float> mantissa(-1, 1);
  std::vector<float> part(n);
  for (float& x : part) x = std::ldexp(mantissa(random), static_cast<int>(random() % 24));
  return part;
}

std::vector<float> sum_in_order(int n_ranks, std::size_t n) {
  std::vector<float> sum = part_of(0, n);
  for (int r = 1; r < n_ranks; ++r) {
    const std::vector<float> part = part_of(r, n);
    for (std::size_t i = 0; i < n; ++i) sum[i] += part[i];
  }
  return sum;
}

void expect_same_bits(std::span<const float> got, std::span<const float> want) {
  ASSERT_EQ(got.size(), want.size());
  EXPECT_EQ(0, std::memcmp(got.data(), want.data(), got.size_bytes()));
}

class CollectiveContract : public testing::TestWithParam<int> {
 protected:
  static void on_every_rank(const std::function<void(Collective&)>& body) {
    for_ranks(GetParam(), body);
  }
};

TEST_P(CollectiveContract, GatherBringsEverybodysBytesInRankOrder) {
  on_every_rank([](Collective& ranks) {
    for (const std::size_t n : {std::size_t{1}, std::size_t{100}, std::size_t{100'000}}) {
      const std::vector<std::int32_t> mine(n, 10 + ranks.rank());
      const auto all = ranks.gather(std::span<const std::int32_t>(mine));
      ASSERT_EQ(all.size(), n * static_cast<std::size_t>(ranks.size()));
      for (std::size_t i = 0; i < all.size(); ++i)
        ASSERT_EQ(all[i], 10 + static_cast<std::int32_t>(i / n));
    }
  });
}

TEST_P(CollectiveContract, SumsAreTakenInRankOrder) {
  on_every_rank([](Collective& ranks) {
    const std::size_t n = 4096;
    std::vector<float> sum(n);
    ranks.sum_rows(part_of(ranks.rank(), n), sum);
    expect_same_bits(sum, sum_in_order(ranks.size(), n));
    if (ranks.size() > 2) {  // the data can tell an order from another
      std::vector<float> backwards = part_of(ranks.size() - 1, n);
      for (int r = ranks.size() - 2; r >= 0; --r) {
        const std::vector<float> part = part_of(r, n);
        for (std::size_t i = 0; i < n; ++i) backwards[i] += part[i];
      }
      EXPECT_FALSE(std::equal(backwards.begin(), backwards.end(), sum.begin()));
    }
  });
}

TEST_P(CollectiveContract, RowSumIgnoresHowManyRowsTravelAlong) {
  on_every_rank([](Collective& ranks) {
    const std::size_t width = 1024;
    const std::vector<float> want = sum_in_order(ranks.size(), 16 * width);
    for (const std::size_t n_rows : {1u, 2u, 3u, 4u, 5u, 11u, 16u}) {
      const std::vector<float> part = part_of(ranks.rank(), n_rows * width);
      std::vector<float> together(n_rows * width);
      ranks.sum_rows(part, together);
      expect_same_bits(together, std::span(want).first(n_rows * width));
      for (std::size_t row = 0; row < n_rows; ++row) {
        std::vector<float> alone(width);
        ranks.sum_rows(std::span(part).subspan(row * width, width), alone);
        expect_same_bits(alone, std::span(together).subspan(row * width, width));
      }
    }
  });
}

TEST_P(CollectiveContract, SumMayReplaceItsPart) {
  on_every_rank([](Collective& ranks) {
    std::vector<float> part = part_of(ranks.rank(), 333);
    ranks.sum_rows(part, part);
    expect_same_bits(part, sum_in_order(ranks.size(), 333));
  });
}

TEST_P(CollectiveContract, MaximumTakesTheHighestScoreAndOfEqualOnesTheSmallerId) {
  on_every_rank([](Collective& ranks) {
    const int r = ranks.rank();
    const double infinity = std::numeric_limits<double>::infinity();
    std::vector<ScoredId> rows{
        {1.0 + r, 100 + r},                     // the last rank has the highest
        {2.5, 100 - r},                         // equal: the last rank has the smallest id
        {2.5, 100 + r},                         // equal: the first has
        {r == 0 ? 9.0 : 0.0, r == 0 ? -1 : r},  // nothing at rank 0, whatever its score says
        {0.0, -1},                              // nothing anywhere
        {-infinity, 7 + r},                     // a score may be anything
    };
    ranks.max_rows(rows);
    const int last = ranks.size() - 1;
    EXPECT_EQ(rows[0].id, 100 + last);
    EXPECT_EQ(rows[0].score, 1.0 + last);
    EXPECT_EQ(rows[1].id, 100 - last);
    EXPECT_EQ(rows[2].id, 100);
    EXPECT_EQ(rows[3].id, last == 0 ? -1 : 1);
    EXPECT_EQ(rows[4].id, -1);
    EXPECT_EQ(rows[5].id, 7);
  });
}

TEST_P(CollectiveContract, BroadcastGivesRankZerosBytesWhateverTheirNumber) {
  on_every_rank([](Collective& ranks) {
    for (const std::size_t n : {0u, 1u, 1000u, 1'000'000u, 3u}) {
      std::vector<std::byte> bytes(ranks.rank() == 0 ? n : 17);
      if (ranks.rank() == 0)
        for (std::size_t i = 0; i < n; ++i) bytes[i] = static_cast<std::byte>(i * 31);
      ranks.broadcast(bytes);
      ASSERT_EQ(bytes.size(), n);
      for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(bytes[i], static_cast<std::byte>(i * 31));
    }
  });
}

TEST_P(CollectiveContract, NothingIsLegal) {
  on_every_rank([](Collective& ranks) {
    ranks.sum_rows({}, {});
    ranks.max_rows({});
    ranks.barrier();
    const auto mine = static_cast<std::uint64_t>(ranks.rank());
    const auto all = ranks.gather(std::span<const std::uint64_t>(&mine, 1));
    ASSERT_EQ(all.size(), static_cast<std::size_t>(ranks.size()));
    EXPECT_EQ(all.back(), all.size() - 1) << "nothing is out of step";
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks,
                         CollectiveContract,
                         testing::ValuesIn(rank_counts()),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace foretoken::test
