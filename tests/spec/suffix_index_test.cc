#include "common/spec/suffix_index.h"

#include <gmock/gmock.h>

#include <random>

namespace foretoken {
namespace {

// An index and its text.
class Indexed {
 public:
  explicit Indexed(std::vector<TokenId> text, std::uint32_t max_match = 8)
      : text_(std::move(text)), index_(max_match) {
    for (std::size_t n = 0; n <= text_.size(); n += 3) index_.extend(std::span(text_).first(n));
    index_.extend(text_);
  }
  std::span<const TokenId> text() const { return text_; }
  std::vector<SuffixIndex::Match> longest(std::span<const TokenId> query) const {
    return index_.longest(text_, query);
  }
  SuffixIndex::Match find(std::span<const TokenId> query, std::size_t near) const {
    return index_.find(text_, query, near);
  }

 private:
  std::vector<TokenId> text_;
  SuffixIndex index_;
};

Indexed indexed(std::vector<TokenId> text, std::uint32_t max_match = 8) {
  return Indexed(std::move(text), max_match);
}

std::vector<std::size_t> places_of(const std::vector<SuffixIndex::Match>& matches) {
  std::vector<std::size_t> places;
  for (const auto& match : matches) places.push_back(match.next);
  return places;
}

TEST(SuffixIndex, PrefersTheLongestRun) {
  const Indexed index = indexed({1, 2, 3, 40, 9, 2, 3, 50, 1, 2, 3});
  const auto found = index.longest(index.text());
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].length, 3u);
  EXPECT_EQ(index.text()[found[0].next], 40);
}

TEST(SuffixIndex, NamesAllPlacesOfTheLongestRunTheLatestFirst) {
  const Indexed index = indexed({5, 10, 5, 10, 5, 20, 5});
  EXPECT_THAT(places_of(index.longest(std::vector<TokenId>{5})), testing::ElementsAre(5, 3, 1));
}

TEST(SuffixIndex, FindsNothingThatIsNotThereOrHasNoContinuation) {
  EXPECT_TRUE(indexed({}).longest(std::vector<TokenId>{1}).empty());
  EXPECT_TRUE(indexed({1, 2, 3}).longest({}).empty());
  EXPECT_TRUE(indexed({1, 2, 3}).longest(std::vector<TokenId>{9}).empty());
  EXPECT_TRUE(indexed({1, 2, 3}).longest(std::vector<TokenId>{3}).empty());
  EXPECT_EQ(indexed({1, 2, 3}).find(std::vector<TokenId>{3}, 0).length, 0u);
}

TEST(SuffixIndex, ComparesAtMostSoManyTokens) {
  const Indexed index = indexed({1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, 4);
  for (const auto& match : index.longest(std::vector<TokenId>(20, 1))) EXPECT_EQ(match.length, 4u);
}

TEST(SuffixIndex, NearPrefersWhatLiesAhead) {
  const Indexed index = indexed({7, 8, 1, 7, 8, 2, 7, 8, 3});
  const std::vector<TokenId> query{7, 8};
  EXPECT_EQ(index.find(query, 0).next, 2u);
  EXPECT_EQ(index.find(query, 3).next, 5u);
  EXPECT_EQ(index.find(query, 6).next, 8u);
  EXPECT_EQ(index.find(query, 9).next, 8u);
}

TEST(SuffixIndex, FindsTheLongestRunOfAnyRandomText) {
  const std::uint32_t seed = 5;
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 300; ++round) {
    std::vector<TokenId> text(2 + random() % 60);  // fewer occurrences than are looked at
    for (TokenId& token : text) token = static_cast<TokenId>(random() % 4);
    const Indexed index = indexed(text, 6);
    std::uint32_t longest = 0;
    for (std::size_t end = 1; end < text.size(); ++end) {
      std::uint32_t length = 0;
      while (length < 6 && length < end && text[end - 1 - length] == text[text.size() - 1 - length])
        ++length;
      longest = std::max(longest, length);
    }
    const auto found = index.longest(text);
    ASSERT_EQ(found.empty() ? 0 : found[0].length, longest);
    for (const auto& match : found) {
      ASSERT_EQ(match.length, longest);
      for (std::uint32_t i = 0; i < match.length; ++i)
        ASSERT_EQ(text[match.next - 1 - i], text[text.size() - 1 - i]);
    }
  }
}

}  // namespace
}  // namespace foretoken
