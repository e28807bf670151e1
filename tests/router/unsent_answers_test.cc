#include "services/router/unsent_answers.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/wire/client_codec.h"

namespace foretoken {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// One client, whose connection takes what comes or says what is wrong.
class OneDoor final : public Bus {
 public:
  TimePoint now() const override { return {}; }
  SocketId bind(const std::string&, Door) override { return 0; }
  SocketId connect(const std::string&) override { return 0; }
  void close(SocketId) override {}
  std::string endpoint(SocketId) const override { return {}; }
  SendResult send(const Peer&, Frames frames) override {
    if (says == SendResult::kSent) took.push_back(std::move(frames));
    return says;
  }
  std::optional<Delivery> receive(TimePoint) override { return std::nullopt; }

  SendResult says = SendResult::kSent;
  std::vector<Frames> took;
};

const Peer kClient{.socket = 1, .routing = "a"};
constexpr TimePoint kKeptAt = TimePoint{} + seconds(100);
constexpr Duration kPause = milliseconds(50);

wire::ClientAnswer answer(const std::string& id) { return wire::ClientReply{.id = id}; }

TEST(UnsentAnswers, AreTriedUntilTheyAreTaken) {
  OneDoor door;
  UnsentAnswers unsent;
  ASSERT_TRUE(unsent.keep(kClient, answer("1"), kKeptAt));
  door.says = SendResult::kBusy;
  EXPECT_EQ(0u, unsent.send_again(door, kKeptAt + seconds(29)));
  EXPECT_FALSE(unsent.empty());
  door.says = SendResult::kSent;
  EXPECT_EQ(0u, unsent.send_again(door, kKeptAt + seconds(29) + kPause));
  EXPECT_TRUE(unsent.empty());
  ASSERT_EQ(1u, door.took.size());
  const auto said = wire::read_client_answer(door.took.front().front());
  ASSERT_TRUE(said.ok());
  EXPECT_EQ("1", std::get<wire::ClientReply>(*said).id);
}

TEST(UnsentAnswers, AreGivenUpAfterHalfAMinuteAndCounted) {
  OneDoor door;
  UnsentAnswers unsent;
  ASSERT_TRUE(unsent.keep(kClient, answer("1"), kKeptAt));
  ASSERT_TRUE(unsent.keep(kClient, answer("2"), kKeptAt + seconds(10)));
  door.says = SendResult::kBusy;
  EXPECT_EQ(1u, unsent.send_again(door, kKeptAt + seconds(30)));
  EXPECT_FALSE(unsent.empty());
  EXPECT_EQ(1u, unsent.send_again(door, kKeptAt + seconds(40)));
  EXPECT_TRUE(unsent.empty());
}

TEST(UnsentAnswers, GoWithTheirClient) {
  OneDoor door;
  UnsentAnswers unsent;
  ASSERT_TRUE(unsent.keep(kClient, answer("1"), kKeptAt));
  ASSERT_TRUE(unsent.keep({.socket = 1, .routing = "b"}, answer("1"), kKeptAt));
  unsent.client_gone(kClient);
  EXPECT_EQ(0u, unsent.send_again(door, kKeptAt + kPause));
  EXPECT_EQ(1u, door.took.size());
}

// A connection may take an answer and give it back when the other side does not read.
TEST(UnsentAnswers, OneThatIsTakenAndComesBackHasNoMoreTimeThanOneThatIsNot) {
  OneDoor door;
  UnsentAnswers unsent;
  TimePoint now = kKeptAt;
  int n_kept = 0;
  while (unsent.keep(kClient, answer("1"), now)) {
    ++n_kept;
    ASSERT_LT(n_kept, 1000) << "it goes round for ever";
    unsent.send_again(door, now + kPause);
    now += milliseconds(500);
  }
  EXPECT_EQ(now, kKeptAt + seconds(30));
  now += seconds(2);  // none came back for a while: that client reads again
  EXPECT_TRUE(unsent.keep(kClient, answer("1"), now));
}

// What comes back is reported at once, so that sending at once again would go on without a pause.
TEST(UnsentAnswers, WaitBeforeTheyAreTriedAgain) {
  OneDoor door;
  UnsentAnswers unsent;
  ASSERT_TRUE(unsent.keep(kClient, answer("1"), kKeptAt));
  EXPECT_EQ(unsent.due(), kKeptAt + kPause);
  door.says = SendResult::kBusy;
  for (int us = 0; us < 1000; ++us) {
    EXPECT_EQ(0u, unsent.send_again(door, kKeptAt + std::chrono::microseconds(us)));
    ASSERT_TRUE(unsent.keep(kClient, answer(std::to_string(us + 2)), kKeptAt));
  }
  EXPECT_TRUE(door.took.empty());
  EXPECT_EQ(unsent.due(), kKeptAt + kPause);
  unsent.send_again(door, kKeptAt + kPause);
  EXPECT_EQ(unsent.due(), kKeptAt + 2 * kPause);
}

// Its last piece was lost, and the end of it waits or is on its way back.
TEST(UnsentAnswers, AnAnswerWithAHoleEndsInAnErrorInstead) {
  const wire::ClientError error{.id = "1", .error = {.code = "cancelled"}};
  for (const bool waits : {true, false}) {
    OneDoor door;
    UnsentAnswers unsent;
    const auto keep = [&] { return unsent.keep(kClient, answer("1"), kKeptAt); };
    EXPECT_EQ(waits, waits && keep());
    unsent.spoil(kClient, "1", error, kKeptAt);
    EXPECT_NE(waits, !waits && keep());
    ASSERT_TRUE(unsent.keep(kClient, answer("2"), kKeptAt));
    unsent.send_again(door, kKeptAt + kPause);
    ASSERT_EQ(2u, door.took.size());
    const auto first = wire::read_client_answer(door.took[0].front());
    ASSERT_TRUE(std::holds_alternative<wire::ClientError>(*first)) << waits;
    EXPECT_EQ("cancelled", std::get<wire::ClientError>(*first).error.code);
    EXPECT_TRUE(
        std::holds_alternative<wire::ClientReply>(*wire::read_client_answer(door.took[1].front())));
    // Another answer under that id, later, is whole.
    ASSERT_TRUE(unsent.keep(kClient, answer("1"), kKeptAt + seconds(2)));
    unsent.send_again(door, kKeptAt + seconds(2));
    unsent.send_again(door, kKeptAt + seconds(3));
    EXPECT_TRUE(std::holds_alternative<wire::ClientReply>(
        *wire::read_client_answer(door.took.back().front())));
  }
}

TEST(UnsentAnswers, AreBounded) {
  UnsentAnswers unsent;
  std::size_t n_kept = 0;
  for (int i = 0; i < 5000; ++i)
    n_kept += unsent.keep(kClient, answer(std::to_string(i)), kKeptAt) ? 1 : 0;
  EXPECT_GT(n_kept, 100u);
  EXPECT_LE(n_kept, 1024u);
}

}  // namespace
}  // namespace foretoken
