#include "services/router/finished_replies.h"

#include <gtest/gtest.h>

#include <string>

namespace foretoken {
namespace {

using std::chrono::seconds;

constexpr TimePoint kBegin = TimePoint{} + seconds(100);

wire::ClientReply reply(std::size_t n_bytes) { return {.text = std::string(n_bytes, 'x')}; }

TEST(FinishedReplies, AreThereForAWhile) {
  FinishedReplies finished({.age = seconds(60)});
  finished.keep({0, 1}, 5, reply(3), kBegin);
  finished.forget_old(kBegin + seconds(60));
  ASSERT_NE(nullptr, finished.find({0, 1}));
  EXPECT_EQ(reply(3), finished.find({0, 1})->reply);
  EXPECT_EQ(nullptr, finished.find({1, 0}));
  finished.forget_old(kBegin + seconds(61));
  EXPECT_EQ(nullptr, finished.find({0, 1}));
}

TEST(FinishedReplies, TheOldestGoFirstWhereThereAreTooMany) {
  FinishedReplies finished({.n_replies = 2});
  for (std::uint64_t i = 1; i <= 3; ++i) finished.keep({0, i}, 5, reply(1), kBegin);
  EXPECT_EQ(nullptr, finished.find({0, 1}));
  EXPECT_NE(nullptr, finished.find({0, 2}));
  EXPECT_NE(nullptr, finished.find({0, 3}));
}

TEST(FinishedReplies, TheOldestGoFirstWhereTheyAreTooLarge) {
  FinishedReplies finished({.n_bytes = 10'000});
  finished.keep({0, 1}, 5, reply(4000), kBegin);
  finished.keep({0, 2}, 5, reply(4000), kBegin);
  EXPECT_NE(nullptr, finished.find({0, 1}));
  finished.keep({0, 3}, 5, reply(4000), kBegin);
  EXPECT_EQ(nullptr, finished.find({0, 1}));
  EXPECT_NE(nullptr, finished.find({0, 2}));
}

TEST(FinishedReplies, OneThatIsTooLargeForAllOfItIsNotKeptAndDrivesNobodyOut) {
  FinishedReplies finished({.n_bytes = 10'000});
  finished.keep({0, 1}, 5, reply(1000), kBegin);
  finished.keep({0, 2}, 5, reply(20'000), kBegin);
  EXPECT_NE(nullptr, finished.find({0, 1}));
  EXPECT_EQ(nullptr, finished.find({0, 2}));
}

TEST(FinishedReplies, WhatAnIdMeantIsKnownForAWhileAfterItsLastEnd) {
  FinishedReplies finished({.age = seconds(60)});
  finished.end({0, 1}, 77, kBegin);
  EXPECT_EQ(77u, finished.content_of({0, 1}));
  EXPECT_EQ(std::nullopt, finished.content_of({1, 0}));
  EXPECT_EQ(nullptr, finished.find({0, 1}));
  finished.end({0, 1}, 77, kBegin + seconds(30));
  finished.forget_old(kBegin + seconds(90));
  EXPECT_EQ(77u, finished.content_of({0, 1}));
  finished.forget_old(kBegin + seconds(91));
  EXPECT_EQ(std::nullopt, finished.content_of({0, 1}));
}

TEST(FinishedReplies, WhatAnIdMeantIsKnownForAsLongAsItsReplyIsKept) {
  FinishedReplies finished({.n_ids = 2});
  finished.keep({0, 1}, 77, reply(3), kBegin);
  for (std::uint64_t i = 1; i <= 3; ++i) finished.end({0, i}, 77, kBegin);
  ASSERT_NE(nullptr, finished.find({0, 1}));
  EXPECT_EQ(77u, finished.content_of({0, 1}));
}

TEST(FinishedReplies, WhatTheOldestIdsMeantGoesFirstWhereThereAreTooMany) {
  FinishedReplies finished({.n_ids = 2});
  for (std::uint64_t i = 1; i <= 3; ++i) finished.end({0, i}, i, kBegin);
  EXPECT_EQ(std::nullopt, finished.content_of({0, 1}));
  EXPECT_EQ(2u, finished.content_of({0, 2}));
  EXPECT_EQ(3u, finished.content_of({0, 3}));
}

}  // namespace
}  // namespace foretoken
