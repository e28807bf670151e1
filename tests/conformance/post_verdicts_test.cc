#include <algorithm>

#include "tests/conformance/op_test.h"

namespace foretoken::test {
namespace {

bool same(const std::vector<BoardEntry>& a, const std::vector<BoardEntry>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0;
}

struct Posts {
  std::vector<Verdict> verdicts;
  std::vector<std::int32_t> which, entries;
  std::vector<std::uint64_t> tags;
  std::vector<BoardEntry> board;

  PostVerdictsArgs args() {
    return {.verdicts = verdicts.data(),
            .n = static_cast<std::int32_t>(which.size()),
            .which = which.data(),
            .entries = entries.data(),
            .tags = tags.data(),
            .board = board.data(),
            .n_entries = static_cast<std::int32_t>(board.size())};
  }
};

std::int32_t any_int(std::mt19937& rng) { return static_cast<std::int32_t>(rng()); }

Posts random_posts(std::mt19937& rng,
                   std::size_t n,
                   std::size_t n_verdicts,
                   std::size_t n_entries) {
  Posts posts;
  for (std::size_t i = 0; i < n_verdicts; ++i)
    posts.verdicts.push_back({any_int(rng), any_int(rng)});
  for (std::size_t i = 0; i < n_entries; ++i)
    posts.board.push_back({std::uint64_t{rng()} << 32 | rng(), any_int(rng), any_int(rng)});
  std::vector<std::int32_t> order(n_entries);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), rng);
  posts.entries.assign(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(n));
  for (std::size_t i = 0; i < n; ++i) {
    posts.which.push_back(static_cast<std::int32_t>(rng() % n_verdicts));
    posts.tags.push_back(std::uint64_t{rng()} << 32 | rng());
  }
  return posts;
}

std::vector<BoardEntry> by_backend(Backend& backend, Posts& posts) {
  const OnDevice<Verdict> verdicts(backend, posts.verdicts);
  const OnDevice<std::int32_t> which(backend, posts.which), entries(backend, posts.entries);
  const OnDevice<std::uint64_t> tags(backend, posts.tags);
  const OnDevice<BoardEntry> board(backend, posts.board);
  PostVerdictsArgs args = posts.args();
  args.verdicts = verdicts.get();
  args.which = which.get();
  args.entries = entries.get();
  args.tags = tags.get();
  args.board = board.get();
  backend.post_verdicts(args);
  return board.host();
}

class PostVerdicts : public OpTest {};

TEST_P(PostVerdicts, MatchesReferenceAndLeavesTheRestAlone) {
  for (const std::size_t n : {1u, 2u, 31u, 127u, 128u, 129u, 300u})
    for (const std::size_t n_spare : {0u, 1u, 50u}) {
      Posts posts = random_posts(rng, n, n / 2 + 1, n + n_spare);
      const auto got = by_backend(backend(), posts);
      ref::post_verdicts(posts.args());
      EXPECT_TRUE(same(got, posts.board)) << n << " posts, " << n_spare << " entries to spare";
    }
}

// Read off the rule, not off an implementation.
TEST_P(PostVerdicts, WhatIsPostedStandsUnderItsTag) {
  Posts posts;
  posts.verdicts = {{3, 70}, {0, -1}, {9, 90}};
  posts.which = {2, 1};
  posts.entries = {0, 3};
  posts.tags = {0xfedcba9876543210u, 5};
  posts.board.assign(4, {7, 6, 5});
  const auto board = by_backend(backend(), posts);
  EXPECT_TRUE(same(board, {{0xfedcba9876543210u, 9, 90}, {7, 6, 5}, {7, 6, 5}, {5, 0, -1}}));
}

TEST_P(PostVerdicts, NothingToPostChangesNothing) {
  Posts posts;
  posts.verdicts = {{3, 70}};
  posts.board.assign(3, {7, 6, 5});
  EXPECT_TRUE(same(by_backend(backend(), posts), posts.board));
  backend().post_verdicts({});  // nor is there need of a board
}

// What accept leaves on the device is what is posted, also when both are replayed.
TEST_P(PostVerdicts, FollowsAcceptInARecording) {
  std::vector<Choice> choices(3);
  for (std::size_t i = 0; i < 3; ++i) choices[i].token = 10 + static_cast<std::int32_t>(i);
  const OnDevice<Choice> chosen(backend(), choices);
  const OnDevice<std::int32_t> tokens(backend(), {9, 10, 99}), begin(backend(), {0, 3}),
      which(backend(), {0}), entries(backend(), {1});
  const OnDevice<std::uint64_t> tags(backend(), {77});
  const OnDevice<Verdict> verdicts(backend(), {{-5, -5}});
  const OnDevice<BoardEntry> board(backend(), std::vector<BoardEntry>(2));
  const auto recording = backend().record([&] {
    backend().accept({.choices = chosen.get(),
                      .tokens = tokens.get(),
                      .n_rows = 3,
                      .n_sequences = 1,
                      .row_begin = begin.get(),
                      .verdicts = verdicts.get()});
    backend().post_verdicts({.verdicts = verdicts.get(),
                             .n = 1,
                             .which = which.get(),
                             .entries = entries.get(),
                             .tags = tags.get(),
                             .board = board.get(),
                             .n_entries = 2});
  });
  backend().replay(*recording);
  EXPECT_TRUE(same(board.host(), {{}, {77, 1, 11}}));
  const std::uint64_t next = 78;
  const std::int32_t agreed = 11;
  backend().upload(tags.get(), &next, sizeof next);
  backend().upload(tokens.get() + 2, &agreed, sizeof agreed);
  backend().replay(*recording);
  EXPECT_TRUE(same(board.host(), {{}, {78, 2, 12}}));
}

using PostVerdictsDeathTest = PostVerdicts;

TEST_P(PostVerdictsDeathTest, RejectsWhatTheContractForbids) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Posts posts = random_posts(rng, 3, 2, 5);
  backend().post_verdicts(posts.args());
  PostVerdictsArgs bad = posts.args();
  bad.n = -1;
  EXPECT_DEATH(backend().post_verdicts(bad), "n >= 0");
  bad = posts.args();
  bad.board = nullptr;
  EXPECT_DEATH(backend().post_verdicts(bad), "board != nullptr");
  bad = posts.args();
  bad.tags = nullptr;
  EXPECT_DEATH(backend().post_verdicts(bad), "tags != nullptr");
  posts.entries[1] = 5;
  EXPECT_DEATH(backend().post_verdicts(posts.args()), "entry outside the board");
  posts.entries[1] = -1;
  EXPECT_DEATH(backend().post_verdicts(posts.args()), "entry outside the board");
}

FORETOKEN_EVERY_DEVICE(PostVerdicts);
FORETOKEN_EMULATED_RING(PostVerdicts);
FORETOKEN_EVERY_ISA(PostVerdictsDeathTest);

}  // namespace
}  // namespace foretoken::test
