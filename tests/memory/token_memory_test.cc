#include "common/memory/token_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "tests/memory/brute_force.h"

namespace foretoken {
namespace {

using Tokens = std::vector<TokenId>;

constexpr RecallRules kRules{.min_match = 2, .max_len = 16, .min_share = 0.1};
constexpr std::uint32_t kManyHeads = 1u << 16;  // no two different words of a test share a chain

Tokens random_tokens(std::mt19937& random, std::size_t n, int n_ids) {
  Tokens tokens(n);
  for (TokenId& token : tokens)
    token = static_cast<TokenId>(random() % static_cast<unsigned>(n_ids));
  return tokens;
}

std::string text_of(const Recollection& r) {
  std::string text = "match " + std::to_string(r.match) + ", places " + std::to_string(r.n_places) +
                     ", chain " + std::to_string(r.n_chain) + ":";
  for (std::size_t i = 0; i < r.tokens.size(); ++i)
    text += " " + std::to_string(r.tokens[i]) + "<" + std::to_string(r.parents[i]) + " (" +
            std::to_string(r.shares[i]) + ")";
  return text;
}

Recollection recall(const TokenMemory& memory,
                    const Tokens& query,
                    const RecallRules& rules = kRules) {
  Recollection found;
  memory.recall(query, rules, found);
  return found;
}

TEST(TokenMemory, GoesOnAsTheSameWordsWentOnBefore) {
  TokenMemory memory(TokenMemory::kLeastPlaces);
  TokenMemory::Document text;
  memory.append(text, Tokens{1, 2, 3, 4, 5, 6, 7, 8});
  const Recollection found = recall(memory, {9, 2, 3});
  EXPECT_EQ(found.match, 2u);
  EXPECT_EQ(found.tokens, (Tokens{4, 5, 6, 7}));  // twice the match
  EXPECT_EQ(found.parents, (std::vector<std::uint16_t>{Recollection::kRoot, 0, 1, 2}));
  EXPECT_EQ(found.n_chain, 4u);
  EXPECT_EQ(recall(memory, {3, 2, 1}).match, 0u);
  EXPECT_EQ(recall(memory, {3}).match, 0u);
  EXPECT_EQ(recall(memory, {}).match, 0u);
}

TEST(TokenMemory, TakesWhatMostPlacesHaveAndThenTheRunnersUp) {
  TokenMemory memory(TokenMemory::kLeastPlaces);
  for (const TokenId next : {5, 6, 6, 7}) {
    TokenMemory::Document text;
    memory.append(text, Tokens{1, 2, next, 10 + next});
    memory.close(text);
  }
  const Recollection found = recall(memory, {1, 2});
  EXPECT_EQ(found.n_places, 4u);
  EXPECT_EQ(found.n_chain, 2u);
  EXPECT_EQ(found.tokens, (Tokens{6, 16, 7, 17, 5, 15}));  // of equals the latest first
  EXPECT_EQ(found.parents, (std::vector<std::uint16_t>{Recollection::kRoot, 0, Recollection::kRoot,
                                                       2, Recollection::kRoot, 4}));
  EXPECT_EQ(found.shares, (std::vector<float>{0.5F, 1, 0.25F, 1, 0.25F, 1}));
  const Recollection sure = recall(memory, {1, 2}, {.min_share = 0.6});
  EXPECT_EQ(sure.match, 2u);
  EXPECT_TRUE(sure.tokens.empty());
}

TEST(TokenMemory, FindsNothingAcrossTwoDocumentsOfAChunk) {
  TokenMemory memory(TokenMemory::kLeastPlaces);
  TokenMemory::Document first;
  memory.append(first, Tokens{1, 2, 3});
  memory.close(first);
  TokenMemory::Document second;
  memory.append(second, Tokens{4, 5, 6});
  ASSERT_EQ(memory.n_free_chunks(), 3u);  // they do share one
  EXPECT_EQ(recall(memory, {3, 4}).match, 0u);
  EXPECT_EQ(recall(memory, {2, 3}).tokens, Tokens{});  // the first one ends there
  EXPECT_EQ(recall(memory, {4, 5}).tokens, Tokens{6});
}

TEST(TokenMemory, EqualsASearchThroughAllTextsThatGrowSideBySide) {
  std::mt19937 random(17);
  std::uint64_t n_found = 0, n_runners_up = 0;
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(round);
    const int n_ids = 2 + round % 7;
    TokenMemory memory(1u << 15, kManyHeads);
    BruteForce model;
    struct Open {
      TokenMemory::Document document;
      std::size_t in_model;
    };
    std::vector<Open> open;
    for (int step = 0; step < 60; ++step) {
      if (open.size() < 3 || random() % 4 == 0) open.push_back({{}, model.open()});
      Open& one = open[random() % open.size()];
      const Tokens more = random_tokens(random, random() % 120, n_ids);
      memory.append(one.document, more);
      model.append(one.in_model, more);
      if (random() % 3 == 0) {
        memory.close(one.document);
        open.erase(open.begin() + (&one - open.data()));
      }
      Tokens query = random_tokens(random, random() % 40, n_ids);
      if (!open.empty() && step % 2 == 0) query = model.text(open[0].in_model);
      const RecallRules rules{.min_match = 2 + static_cast<std::uint32_t>(step % 3),
                              .max_len = 1 + static_cast<std::uint32_t>(random() % 20),
                              .min_share = 0.02 * static_cast<double>(random() % 10)};
      const Recollection found = recall(memory, query, rules);
      ASSERT_EQ(text_of(found), text_of(model.recall(query, rules)));
      n_found += found.n_chain > 0;
      n_runners_up += found.tokens.size() > found.n_chain;
    }
  }
  EXPECT_GT(n_found, 1500u);
  EXPECT_GT(n_runners_up, 1000u);
}

TEST(TokenMemory, ForgetsTheOldestChunkAtEveryOffsetOfTheRing) {
  std::mt19937 random(18);
  TokenMemory memory(TokenMemory::kLeastPlaces, kManyHeads);
  TokenMemory::Document document;
  BruteForce model;
  const std::size_t in_model = model.open();
  for (std::size_t n = 1; n <= 3 * TokenMemory::kLeastPlaces; ++n) {
    const Tokens one = random_tokens(random, 1, 4);
    memory.append(document, one);
    model.append(in_model, one);
    const std::size_t n_chunks = (n - 1) / TokenMemory::kChunk + 1;
    model.forget_before(n_chunks <= 4 ? 0 : (n_chunks - 4) * TokenMemory::kChunk);
    ASSERT_EQ(memory.n_tokens() + memory.n_evicted(), n);
    ASSERT_EQ(text_of(recall(memory, model.text(in_model))),
              text_of(model.recall(model.text(in_model), kRules)))
        << "after " << n << " tokens";
  }
}

// What is found must stand in a text, whatever was overwritten, grown and closed in between.
TEST(TokenMemory, FindsOnlyWhatWasWrittenWhereTheRingIsOverwritten) {
  std::mt19937 random(19);
  TokenMemory memory(TokenMemory::kLeastPlaces);
  struct Open {
    TokenMemory::Document document;
    Tokens text;
  };
  std::vector<Open> open(5);
  std::vector<std::string> texts;  // a character for each token
  const auto letters = [](std::span<const TokenId> tokens) {
    std::string text;
    for (const TokenId token : tokens) text += static_cast<char>('a' + token);
    return text;
  };
  const auto stands = [&](const std::string& words) {
    return std::any_of(texts.begin(), texts.end(),
                       [&](const auto& t) { return t.find(words) != std::string::npos; }) ||
           std::any_of(open.begin(), open.end(), [&](const Open& o) {
             return letters(o.text).find(words) != std::string::npos;
           });
  };
  std::uint64_t n_checked = 0;
  int next_growth = 1000;
  for (int step = 0; step < 4000; ++step) {
    Open& one = open[random() % open.size()];
    const Tokens more = random_tokens(random, random() % 40, 5);
    memory.append(one.document, more);
    one.text.insert(one.text.end(), more.begin(), more.end());
    const Tokens query = one.text;
    if (random() % 12 == 0) {
      memory.close(one.document);
      texts.push_back(letters(one.text));
      if (texts.size() > 400) texts.erase(texts.begin());  // long overwritten
      one = {};
    }
    if (step >= next_growth && memory.can_grow()) {
      memory.grow(memory.n_places() * 2 + TokenMemory::kChunk);
      next_growth += 1500;
    }
    const Recollection found = recall(memory, query);
    if (found.n_chain == 0) continue;
    ++n_checked;
    Tokens path(query.end() - found.match, query.end());
    for (std::size_t i = 0; i < found.n_chain; ++i) path.push_back(found.tokens[i]);
    ASSERT_TRUE(stands(letters(path))) << step << ": " << text_of(found);
  }
  EXPECT_GT(next_growth, 2500);
  EXPECT_GT(n_checked, 3000u);
  EXPECT_GT(memory.n_evicted(), 10000u);
}

TEST(TokenMemory, KeepsAllItRemembersWhenItGrows) {
  std::mt19937 random(20);
  for (const std::size_t n_before : {100u, 1024u, 1500u, 5000u}) {
    SCOPED_TRACE(n_before);
    TokenMemory memory(TokenMemory::kLeastPlaces, kManyHeads);
    TokenMemory::Document document;
    BruteForce model;
    const std::size_t in_model = model.open();
    const auto write = [&](std::size_t n) {
      const Tokens tokens = random_tokens(random, n, 4);
      memory.append(document, tokens);
      model.append(in_model, tokens);
    };
    write(n_before);
    std::size_t n_chunks = (n_before - 1) / TokenMemory::kChunk + 1;
    for (; !memory.can_grow(); ++n_chunks) write(TokenMemory::kChunk);
    model.forget_before(n_chunks <= 4 ? 0 : (n_chunks - 4) * TokenMemory::kChunk);
    memory.grow(3 * TokenMemory::kLeastPlaces);
    for (int i = 0; i < 100; ++i) {
      ASSERT_EQ(text_of(recall(memory, model.text(in_model))),
                text_of(model.recall(model.text(in_model), kRules)));
      write(random() % 20);
    }
  }
}

// Appending is what look-ups wait for: a part of a table at a time, however large it is.
TEST(TokenMemory, CopiesAFewHeadsWithEachTokenWhenItGrows) {
  constexpr std::size_t kPiece = 100;
  std::mt19937 random(21);
  TokenMemory memory(TokenMemory::kLeastPlaces);
  TokenMemory::Document document;
  std::uint64_t most_at_once = 0;
  for (int i = 0; i < 4000; ++i) {
    const std::uint64_t before = memory.n_moved();
    if (memory.n_free_chunks() < 2) memory.grow(2 * memory.n_places());
    memory.append(document, random_tokens(random, kPiece, 50));
    most_at_once = std::max(most_at_once, memory.n_moved() - before);
  }
  EXPECT_EQ(memory.n_places(), 512u * 1024);
  EXPECT_EQ(memory.n_evicted(), 0u);
  EXPECT_GE(memory.n_moved(), 3u * 256 * 1024);
  EXPECT_LE(most_at_once, 3 * 16 * kPiece);
}

// Of two tables of heads the smaller is soon gone, or a memory that has just grown takes 50 bytes a
// token.
TEST(TokenMemory, TakesFewBytesSoonAfterItGrew) {
  constexpr std::size_t kPlacesBefore = 256 * 1024;
  std::mt19937 random(22);
  TokenMemory memory(TokenMemory::kLeastPlaces);
  TokenMemory::Document document;
  while (memory.n_tokens() < kPlacesBefore + kPlacesBefore / 16) {
    if (memory.n_free_chunks() < 2) memory.grow(2 * memory.n_places());
    memory.append(document, random_tokens(random, 100, 50));
  }
  EXPECT_EQ(memory.n_places(), 2 * kPlacesBefore);
  EXPECT_LE(memory.size_bytes(), 40 * memory.n_tokens());
}

// A word that many others share a chain with costs a bounded number of steps.
TEST(TokenMemory, FollowsABoundedNumberOfLinks) {
  TokenMemory memory(1u << 14);
  TokenMemory::Document document;
  memory.append(document, Tokens(10'000, 7));
  const Recollection found = recall(memory, Tokens(40, 7));
  EXPECT_EQ(found.match, TokenMemory::kMaxMatch);
  EXPECT_EQ(found.n_looked, TokenMemory::kMaxPlaces);
  EXPECT_LE(recall(memory, {7, 8}).n_looked, TokenMemory::kMaxLooked);
}

TEST(TokenMemory, TakesTheBytesOfItsPlacesHoweverManyDocumentsItHas) {
  TokenMemory memory(1u << 14);
  std::uint64_t when_full = 0;
  for (int i = 0; i < 100'000; ++i) {
    TokenMemory::Document document;
    memory.append(document, Tokens{i % 7, i % 11, i % 13});
    memory.close(document);
    if (memory.n_evicted() == 0) when_full = memory.size_bytes();
  }
  EXPECT_LT(when_full, (1u << 14) * 29u);
  EXPECT_EQ(memory.size_bytes(), when_full);
  EXPECT_GT(memory.n_tokens(), 10'000u);  // of 16,384 places: short texts share chunks
  EXPECT_EQ(memory.n_tokens() + memory.n_evicted(), 300'000u);
}

}  // namespace
}  // namespace foretoken
