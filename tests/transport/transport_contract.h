// What any transport must do, whatever carries the bytes. A case gives a pair of transports and a
// way to wait.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/base/clock.h"
#include "common/transport/transport.h"

namespace foretoken {

struct TransportPair {
  std::shared_ptr<void> world;  // what must outlive the transports
  std::unique_ptr<Transport> server;
  std::unique_ptr<Transport> client;
  std::string wildcard;              // an endpoint to bind, different each time
  std::function<TimePoint()> later;  // a deadline by which a message that comes has come
  std::function<TimePoint()> now;
};

class TransportContract : public ::testing::TestWithParam<std::function<TransportPair()>> {
 protected:
  // IMMEDIATE sockets refuse until the connection is up: repeat, as services do.
  static SendResult send_when_up(TransportPair& pair, const Peer& to, const Frames& frames) {
    const TimePoint until = pair.later();
    SendResult result = SendResult::kBusy;
    for (int i = 0; i < 100000 && result == SendResult::kBusy && pair.now() < until; ++i) {
      result = pair.client->send(to, frames);
      if (result == SendResult::kBusy)
        (void)pair.client->receive(pair.now() + std::chrono::milliseconds(1));
    }
    return result;
  }
};

TEST_P(TransportContract, CarriesMessagesBothWays) {
  TransportPair pair = GetParam()();
  const SocketId bound = pair.server->bind(pair.wildcard, Door::kInternal);
  const SocketId dialled = pair.client->connect(pair.server->endpoint(bound));
  ASSERT_EQ(send_when_up(pair, {dialled, "", false}, {"header", "body", std::string(100000, 'x')}),
            SendResult::kSent);
  const auto question = pair.server->receive(pair.later());
  ASSERT_TRUE(question.has_value());
  EXPECT_EQ(question->kind, DeliveryKind::kMessage);
  EXPECT_EQ(question->frames, (Frames{"header", "body", std::string(100000, 'x')}));
  EXPECT_EQ(question->peer.socket, bound);
  EXPECT_FALSE(question->peer.routing.empty());
  ASSERT_EQ(pair.server->send(question->peer, {"answer", ""}), SendResult::kSent);
  const auto answer = pair.client->receive(pair.later());
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->frames, (Frames{"answer", ""}));
  EXPECT_EQ(answer->peer, (Peer{dialled, "", false}));
}

TEST_P(TransportContract, KeepsOrderOnOneConnection) {
  TransportPair pair = GetParam()();
  const SocketId bound = pair.server->bind(pair.wildcard, Door::kInternal);
  const SocketId dialled = pair.client->connect(pair.server->endpoint(bound));
  for (int i = 0; i < 50; ++i)
    ASSERT_EQ(send_when_up(pair, {dialled, "", false}, {std::to_string(i), "x"}),
              SendResult::kSent);
  for (int i = 0; i < 50; ++i) {
    const auto got = pair.server->receive(pair.later());
    ASSERT_TRUE(got.has_value());
    EXPECT_EQ(got->frames[0], std::to_string(i));
  }
}

TEST_P(TransportContract, SaysUnknownForAConnectionThatIsNot) {
  TransportPair pair = GetParam()();
  const SocketId bound = pair.server->bind(pair.wildcard, Door::kInternal);
  EXPECT_EQ(pair.server->send({bound, "nobody", false}, {"x", "y"}), SendResult::kUnknown);
  EXPECT_EQ(pair.server->send({bound + 77, "", false}, {"x", "y"}), SendResult::kUnknown);
}

TEST_P(TransportContract, SaysUnknownAfterThePeerHasGone) {
  TransportPair pair = GetParam()();
  const SocketId bound = pair.server->bind(pair.wildcard, Door::kInternal);
  const SocketId dialled = pair.client->connect(pair.server->endpoint(bound));
  ASSERT_EQ(send_when_up(pair, {dialled, "", false}, {"hello", ""}), SendResult::kSent);
  const auto hello = pair.server->receive(pair.later());
  ASSERT_TRUE(hello.has_value());
  pair.client->close(dialled);
  SendResult result = SendResult::kSent;
  const TimePoint until = pair.later();
  while (result != SendResult::kUnknown && pair.now() < until) {
    result = pair.server->send(hello->peer, {"still there?", ""});
    (void)pair.server->receive(pair.now() + std::chrono::milliseconds(1));
  }
  EXPECT_EQ(result, SendResult::kUnknown);
}

TEST_P(TransportContract, SaysBusyWithoutAConnection) {
  TransportPair pair = GetParam()();
  const SocketId bound = pair.server->bind(pair.wildcard, Door::kInternal);
  const std::string endpoint = pair.server->endpoint(bound);
  pair.server->close(bound);
  const SocketId dialled = pair.client->connect(endpoint);
  // A closed socket takes connections for a moment longer.
  SendResult result = SendResult::kSent;
  const TimePoint until = pair.later();
  while (result != SendResult::kBusy && pair.now() < until) {
    result = pair.client->send({dialled, "", false}, {"x", "y"});
    (void)pair.client->receive(pair.now() + std::chrono::milliseconds(1));
  }
  EXPECT_EQ(result, SendResult::kBusy);
}

TEST_P(TransportContract, ReceivesNothingWhenTheDeadlineHasPassed) {
  TransportPair pair = GetParam()();
  pair.server->bind(pair.wildcard, Door::kInternal);
  EXPECT_FALSE(pair.server->receive(TimePoint::min()).has_value());
  EXPECT_FALSE(pair.server->receive(pair.now() + std::chrono::milliseconds(2)).has_value());
}

TEST_P(TransportContract, WakesBeforeTheDeadline) {
  TransportPair pair = GetParam()();
  pair.server->bind(pair.wildcard, Door::kInternal);
  pair.server->wake();
  EXPECT_FALSE(
      pair.server->receive(TimePoint::max()).has_value());  // or the test's time limit says so
}

}  // namespace foretoken
