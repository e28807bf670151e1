// The error of an answer for which there is no room.
#include "services/edge/answer_room.h"

#include <gmock/gmock.h>

#include <stdexcept>

namespace foretoken::edge {
namespace {

using ::testing::HasSubstr;

struct FakeExchange final : HttpExchange {
  HeldRoom room = HeldRoom::kFree;
  std::size_t held = 0;

  HeldRoom hold_answer(std::size_t n_bytes) override {
    held = n_bytes;
    return room;
  }
  const HttpRequest& request() const override { throw std::logic_error("request"); }
  bool replace_body(std::size_t) override { throw std::logic_error("replace_body"); }
  boost::asio::awaitable<void> reply(HttpReply) override { throw std::logic_error("reply"); }
  void add_header(std::string, std::string) override {}
  unsigned status() const override { return 0; }
  boost::asio::awaitable<bool> begin_stream(HttpHeaders) override {
    throw std::logic_error("begin_stream");
  }
  boost::asio::awaitable<bool> write(std::string) override { throw std::logic_error("write"); }
  boost::asio::awaitable<void> end_stream(bool) override { throw std::logic_error("end_stream"); }
  bool is_gone() const override { return false; }
  void on_gone(std::function<void()>) override {}
};

TEST(AnswerRoom, HoldsWhatHasRoom) {
  FakeExchange exchange;
  AnswerRoom room(exchange, std::size_t{3} << 20);
  EXPECT_TRUE(room.hold(1000));
  EXPECT_EQ(exchange.held, 1000U);
  EXPECT_FALSE(room.refusal());
}

TEST(AnswerRoom, WhatNeverHasRoomIsTheRequestsOwnError) {
  FakeExchange exchange;
  exchange.room = HeldRoom::kNever;
  AnswerRoom room(exchange, std::size_t{3} << 20);
  EXPECT_FALSE(room.hold(std::size_t{4} << 20));
  ASSERT_TRUE(room.refusal());
  EXPECT_EQ(room.refusal()->status, 400U);
  EXPECT_THAT(room.refusal()->message, HasSubstr("more than 3 MiB of memory"));
  EXPECT_THAT(room.refusal()->message, HasSubstr("edge.max_bodies_mib"));
  EXPECT_THAT(retry_headers(*room.refusal()), testing::IsEmpty());
}

TEST(AnswerRoom, WhatOthersLeaveNoRoomMayComeAgain) {
  FakeExchange exchange;
  exchange.room = HeldRoom::kTaken;
  AnswerRoom room(exchange, std::size_t{3} << 20);
  EXPECT_FALSE(room.hold(1000));
  ASSERT_TRUE(room.refusal());
  EXPECT_EQ(room.refusal()->status, 503U);
  EXPECT_THAT(retry_headers(*room.refusal()), testing::Contains(testing::Key("Retry-After")));
}

}  // namespace
}  // namespace foretoken::edge
