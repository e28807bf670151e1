#include "common/base/limit.h"

#include <gtest/gtest.h>

#include <cmath>

namespace foretoken {
namespace {

TEST(Limit, HasItsEndsOrNot) {
  EXPECT_TRUE(from_to(-2, 2).contains(-2) && from_to(-2, 2).contains(2));
  EXPECT_FALSE(from_to(-2, 2).contains(2.1) || from_to(-2, 2).contains(-2.1));
  EXPECT_TRUE(above_to(0, 1).contains(1));
  EXPECT_FALSE(above_to(0, 1).contains(0));
  EXPECT_TRUE(from_below(0, 1).contains(0));
  EXPECT_FALSE(from_below(0, 1).contains(1));
  EXPECT_FALSE(from_to(-2, 2).contains(std::nan("")) || any_value().contains(std::nan("")));
}

TEST(Limit, IsSaidAsASentenceGoesOn) {
  EXPECT_EQ(range_text(from_to(0, 100)), "from 0 to 100");
  EXPECT_EQ(range_text(from_to(1, 4294967295)), "from 1 to 4294967295");
  EXPECT_EQ(range_text(above_to(0, 1)), "above 0 and at most 1");
  EXPECT_EQ(range_text(from_below(0, 1)), "from 0 and below 1");
  EXPECT_EQ(range_text(from_to(0, 9).or_off(-1)), "from 0 to 9, or -1");
  EXPECT_EQ(range_text(from_to(1, 1)), "1");
  EXPECT_EQ(range_text(entries(16, 256)), "");
}

TEST(Limit, HasARangeEntriesAndBytes) {
  EXPECT_EQ(limit_text(from_to(-100, 100).at_most(300)), "from -100 to 100; at most 300");
  EXPECT_EQ(limit_text(entries(16, 256)), "at most 16 of 256 bytes");
  EXPECT_EQ(limit_text(entries(64)), "at most 64");
  EXPECT_EQ(limit_text(bytes(128)), "at most 128 bytes");
  EXPECT_EQ(limit_text(any_value()), "");
}

TEST(Limit, NumbersAreSaidWithTheDigitsThatTheyHave) {
  EXPECT_EQ(number_text(0.1f), "0.1");
  EXPECT_EQ(number_text(-2), "-2");
  EXPECT_EQ(number_text(4294967295.0), "4294967295");
  EXPECT_EQ(number_text(1e300), "1e+300");
  EXPECT_EQ(number_text(std::nan("")), "nan");
}

TEST(Limit, OnlyItsOwnValueStandsForNothing) {
  const Limit limit = from_to(0, 20).unless_given(-1, "none");
  EXPECT_TRUE(limit.is_none(-1));
  EXPECT_FALSE(limit.is_none(0) || from_to(0, 20).is_none(-1));
  EXPECT_TRUE(from_to(0, 20).or_off(-1).is_off(-1));
  EXPECT_FALSE(from_to(0, 20).or_off(-1).is_off(0) || from_to(0, 20).is_off(-1));
}

}  // namespace
}  // namespace foretoken
