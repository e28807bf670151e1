#include "services/router/finished_replies.h"

#include <gtest/gtest.h>

#include <string>

#include "common/messages/limits.h"
#include "common/wire/client_codec.h"

namespace foretoken {
namespace {

using std::chrono::seconds;

constexpr TimePoint kBegin = TimePoint{} + seconds(100);

wire::ClientReply reply(std::size_t n_bytes) { return {.text = std::string(n_bytes, 'x')}; }

TEST(FinishedReplies, AreThereForAWhile) {
  FinishedReplies finished({.age = seconds(60)});
  finished.keep({0, 1}, 5, reply(3), kBegin);
  finished.forget_old(kBegin + seconds(60));
  ASSERT_TRUE(finished.has({0, 1}));
  EXPECT_EQ(reply(3), finished.find({0, 1}));
  EXPECT_EQ(std::nullopt, finished.find({1, 0}));
  EXPECT_FALSE(finished.has({1, 0}));
  finished.forget_old(kBegin + seconds(61));
  EXPECT_FALSE(finished.has({0, 1}));
}

TEST(FinishedReplies, TheOldestGoFirstWhereThereAreTooMany) {
  FinishedReplies finished({.n_replies = 2});
  for (std::uint64_t i = 1; i <= 3; ++i) finished.keep({0, i}, 5, reply(1), kBegin);
  EXPECT_FALSE(finished.has({0, 1}));
  EXPECT_TRUE(finished.has({0, 2}));
  EXPECT_TRUE(finished.has({0, 3}));
}

TEST(FinishedReplies, TheOldestGoFirstWhereTheyAreTooLarge) {
  FinishedReplies finished({.n_bytes = 10'000});
  finished.keep({0, 1}, 5, reply(4000), kBegin);
  finished.keep({0, 2}, 5, reply(4000), kBegin);
  EXPECT_TRUE(finished.has({0, 1}));
  finished.keep({0, 3}, 5, reply(4000), kBegin);
  EXPECT_FALSE(finished.has({0, 1}));
  EXPECT_TRUE(finished.has({0, 2}));
}

TEST(FinishedReplies, OneThatIsTooLargeForAllOfItIsNotKeptAndDrivesNoneOut) {
  FinishedReplies finished({.n_bytes = 10'000});
  finished.keep({0, 1}, 5, reply(1000), kBegin);
  finished.keep({0, 2}, 5, reply(20'000), kBegin);
  EXPECT_TRUE(finished.has({0, 1}));
  EXPECT_FALSE(finished.has({0, 2}));
}

TEST(FinishedReplies, ComeBackWithEveryByteTheyWereGivenWith) {
  wire::ClientReply whole{.id = wire::hex_of(RequestId{0, 1}),
                          .model = "demo",
                          .text = "snow \xf0\x9f\x8e\x89",
                          .token_ids = {3, 70'000, 5},
                          .finish_reason = "stop",
                          .stop_reason = std::string("\n"),
                          .system_fingerprint = "00ff",
                          .position = 0,
                          .offset = 0};
  whole.usage = {.prompt_tokens = 7, .completion_tokens = 3, .total_tokens = 10};
  whole.metrics.speculative_decoding.draft_acceptance_rate = 1.0 / 3;
  whole.metrics.speculative_decoding.acceptance_histogram_by_draft_length = {{"2", {0, 4, 70'000}}};
  whole.logprobs = {
      {.token_id = 3, .logprob = -0.1, .top_ids = {3, 9}, .top_logprobs = {-0.1, -2.3}},
      {.token_id = 70'000, .logprob = -1e-7}};
  FinishedReplies finished({});
  finished.keep({0, 1}, 5, whole, kBegin);
  const auto again = finished.find({0, 1});
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(whole, *again);
  EXPECT_EQ(wire::write_client_answer(whole), wire::write_client_answer(*again));
}

TEST(FinishedReplies, OneWithMoreTextThanAMessageMayHoldComesBack) {
  FinishedReplies finished({});
  finished.keep({0, 1}, 5, reply(wire::kMaxStringBytes + 1), kBegin);
  EXPECT_EQ(reply(wire::kMaxStringBytes + 1), finished.find({0, 1}));
}

TEST(FinishedReplies, TakeFewBytesEach) {
  wire::ClientReply reply{
      .id = wire::hex_of(RequestId{0, 1}), .model = "demo", .finish_reason = "length"};
  for (TokenId token = 200; token < 232; ++token) {
    reply.text += "snow";
    reply.token_ids.push_back(token);
  }
  // Of 64,000 bytes each of a hundred has at most 640.
  FinishedReplies finished({.n_bytes = 64'000});
  for (std::uint64_t i = 1; i <= 100; ++i) finished.keep({0, i}, 5, reply, kBegin);
  EXPECT_TRUE(finished.has({0, 1}));
}

TEST(FinishedReplies, WhatAnIdMeantIsKnownForAWhileAfterItsLastEnd) {
  FinishedReplies finished({.age = seconds(60)});
  finished.end({0, 1}, 77, 1, kBegin);
  EXPECT_EQ(77u, finished.content_of({0, 1}));
  EXPECT_EQ(std::nullopt, finished.content_of({1, 0}));
  EXPECT_FALSE(finished.has({0, 1}));
  finished.end({0, 1}, 77, 1, kBegin + seconds(30));
  finished.forget_old(kBegin + seconds(90));
  EXPECT_EQ(77u, finished.content_of({0, 1}));
  finished.forget_old(kBegin + seconds(91));
  EXPECT_EQ(std::nullopt, finished.content_of({0, 1}));
}

TEST(FinishedReplies, WhatAnIdMeantIsKnownForAsLongAsItsReplyIsKept) {
  FinishedReplies finished({.n_ids = 2});
  finished.keep({0, 1}, 77, reply(3), kBegin);
  for (std::uint64_t i = 1; i <= 3; ++i) finished.end({0, i}, 77, 1, kBegin);
  ASSERT_TRUE(finished.has({0, 1}));
  EXPECT_EQ(77u, finished.content_of({0, 1}));
}

TEST(FinishedReplies, WhatTheOldestIdsMeantGoesFirstWhereThereAreTooMany) {
  FinishedReplies finished({.n_ids = 2});
  for (std::uint64_t i = 1; i <= 3; ++i) finished.end({0, i}, i, 1, kBegin);
  EXPECT_EQ(std::nullopt, finished.content_of({0, 1}));
  EXPECT_EQ(2u, finished.content_of({0, 2}));
  EXPECT_EQ(3u, finished.content_of({0, 3}));
}

}  // namespace
}  // namespace foretoken
