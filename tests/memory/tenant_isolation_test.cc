// Two tenants never meet: not in an answer, not in its length or order, not in the places looked
// at for it, which are its time.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "common/memory/tenant_memories.h"

namespace foretoken {
namespace {

using Tokens = std::vector<TokenId>;

constexpr TokenId kMark = 1000;  // + the tenant: a token that no other tenant ever writes

// Words that all tenants share, each followed by the tenant's mark.
Tokens marked_text(std::mt19937& random, TenantSalt salt) {
  Tokens text;
  for (int word = 0; word < 6; ++word) {
    const auto begin = static_cast<TokenId>(random() % 40);
    for (TokenId i = 0; i < 8; ++i) text.push_back((begin + i) % 48);
    text.push_back(kMark + static_cast<TokenId>(salt));
  }
  return text;
}

TEST(TenantIsolation, NoMarkOfAnotherTenantIsSeenInAMillionLookUps) {
  std::mt19937 random(22);
  TenantMemories memories({.n_places = std::uint64_t{1} << 18, .tenant_share = 0.25});
  std::uint64_t n_marks = 0;
  Recollection found;
  for (int i = 0; i < 1'000'000; ++i) {
    const TenantSalt salt = random() % 50;
    if (i % 10 == 0) {
      auto document = memories.open(salt);
      memories.append(document, marked_text(random, salt));
      memories.close(document);
    }
    const TenantSalt asker = random() % 50;
    Tokens query;
    const auto begin = static_cast<TokenId>(random() % 48);
    for (TokenId k = 0; k < 8; ++k) query.push_back((begin + k) % 48);
    memories.recall(asker, query, {}, found);
    for (const TokenId token : found.tokens) {
      if (token < kMark) continue;
      ++n_marks;
      ASSERT_EQ(token, kMark + static_cast<TokenId>(asker));
    }
  }
  EXPECT_GT(n_marks, 1'000'000u);
}

TEST(TenantIsolation, OthersChangeNeitherAnswersNorThePlacesLookedAt) {
  std::mt19937 random(23);
  const TenantMemoriesOptions options{.n_places = std::uint64_t{1} << 18, .tenant_share = 0.25};
  TenantMemories alone(options);
  TenantMemories among_others(options);
  Recollection a, b;
  std::uint64_t n_looked = 0;
  for (int i = 0; i < 100'000; ++i) {
    if (i % 10 == 0) {
      const Tokens text = marked_text(random, 7);
      for (TenantMemories* memories : {&alone, &among_others}) {
        auto document = memories->open(7);
        memories->append(document, text);
        memories->close(document);
      }
      for (const TenantSalt salt : {8u, 9u}) {
        auto document = among_others.open(salt);
        among_others.append(document, marked_text(random, salt));
        among_others.close(document);
      }
    }
    const Tokens query = marked_text(random, 7);
    const std::span words = std::span(query).first(1 + random() % (query.size() - 1));
    alone.recall(7, words, {}, a);
    among_others.recall(7, words, {}, b);
    ASSERT_EQ(a.tokens, b.tokens);
    ASSERT_EQ(a.parents, b.parents);
    ASSERT_EQ(a.shares, b.shares);
    ASSERT_EQ(a.n_looked, b.n_looked);
    n_looked += a.n_looked;
  }
  EXPECT_GT(n_looked, 500'000u);
}

}  // namespace
}  // namespace foretoken
