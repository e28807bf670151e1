#include "common/runtime/threaded_bus.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

#include "common/base/result.h"
#include "common/transport/zmq_transport.h"

namespace foretoken {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::unique_ptr<ThreadedBus> make_bus(std::size_t capacity = 64) {
  return std::make_unique<ThreadedBus>(std::make_unique<ZmqTransport>(), capacity);
}

// Sends until the connection is up, throwing away the reports of messages that came too early.
Delivery exchange(ThreadedBus& from, const Peer& to, const Frames& frames, ThreadedBus& at) {
  for (int i = 0; i < 2000; ++i) {
    (void)from.send(to, frames);
    if (auto got = at.receive(at.now() + milliseconds(5))) return *got;
  }
  ADD_FAILURE() << "nothing arrived";
  return {};
}

TEST(ThreadedBus, CarriesMessagesBothWays) {
  const auto server = make_bus();
  const auto client = make_bus();
  const SocketId bound = server->bind("tcp://127.0.0.1:*", Door::kInternal);
  const SocketId dialled = client->connect(server->endpoint(bound));
  const Delivery question = exchange(*client, {dialled, "", false}, {"q", "1"}, *server);
  EXPECT_EQ(question.frames, (Frames{"q", "1"}));
  while (client->receive(TimePoint::min())) {
  }
  ASSERT_EQ(server->send(question.peer, {"a", "1"}), SendResult::kSent);
  std::optional<Delivery> answer;
  do {
    answer = client->receive(client->now() + seconds(10));
  } while (answer && answer->kind != DeliveryKind::kMessage);
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->frames, (Frames{"a", "1"}));
}

TEST(ThreadedBus, ReportsAPeerThatIsGone) {
  const auto server = make_bus();
  const SocketId bound = server->bind("tcp://127.0.0.1:*", Door::kInternal);
  ASSERT_EQ(server->send({bound, "nobody", false}, {"x", "y"}), SendResult::kSent);
  const auto report = server->receive(server->now() + seconds(10));
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->kind, DeliveryKind::kUndelivered);
  EXPECT_EQ(report->peer.routing, "nobody");
  EXPECT_EQ(report->frames, (Frames{"x", "y"}));
}

TEST(ThreadedBus, ReportsWhatWasDropped) {
  const auto client = make_bus();
  const SocketId dialled = client->connect("ipc:///tmp/foretoken-nobody-serves-this");
  ASSERT_EQ(client->send({dialled, "", false}, {"x", "y"}), SendResult::kSent);
  const auto report = client->receive(client->now() + seconds(10));
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->kind, DeliveryKind::kDropped);
}

TEST(ThreadedBus, ThrowsWhereTheServiceAsked) {
  const auto bus = make_bus();
  EXPECT_THROW(bus->bind("tcp://localhost:5", Door::kInternal), FatalError);
  EXPECT_THROW(bus->connect("nonsense"), FatalError);
}

TEST(ThreadedBus, HoldsPeersBackWhenTheInboxIsFullAndLosesNothing) {
  const auto server = make_bus(8);
  const auto client = make_bus(1024);
  const SocketId bound = server->bind("tcp://127.0.0.1:*", Door::kInternal);
  const SocketId dialled = client->connect(server->endpoint(bound));
  (void)exchange(*client, {dialled, "", false}, {"up?"}, *server);
  while (server->receive(server->now() + milliseconds(50))) {
  }
  for (int i = 0; i < 200; ++i)
    ASSERT_EQ(client->send({dialled, "", false}, {std::to_string(i)}), SendResult::kSent);
  for (int i = 0; i < 200; ++i) {
    const auto got = server->receive(server->now() + seconds(10));
    ASSERT_TRUE(got.has_value());
    EXPECT_EQ(got->frames[0], std::to_string(i));
  }
}

TEST(ThreadedBus, SendsWhatIsInTheOutboxBeforeItEnds) {
  const auto server = make_bus();
  auto client = make_bus();
  const SocketId bound = server->bind("tcp://127.0.0.1:*", Door::kInternal);
  const SocketId dialled = client->connect(server->endpoint(bound));
  (void)exchange(*client, {dialled, "", false}, {"up?"}, *server);
  ASSERT_EQ(client->send({dialled, "", false}, {"goodbye"}), SendResult::kSent);
  client.reset();
  std::optional<Delivery> got;
  do {
    got = server->receive(server->now() + seconds(10));
  } while (got && got->frames[0] != "goodbye");
  EXPECT_TRUE(got.has_value());
}

TEST(ThreadedBus, WaitsForAnotherDescriptorToo) {
  const auto bus = make_bus();
  const int fd = ::eventfd(1, EFD_NONBLOCK);
  bus->wait(bus->now() + seconds(60), fd);  // or the test's time limit says so
  ::close(fd);
}

TEST(SpscQueue, RefusesWhenFullAndKeepsTheValue) {
  SpscQueue<std::string> queue(2);
  std::string a = "a", b = "b", c = "c";
  EXPECT_TRUE(queue.push(a));
  EXPECT_TRUE(queue.push(b));
  EXPECT_FALSE(queue.push(c));
  EXPECT_EQ(c, "c");
  EXPECT_EQ(queue.pop(), "a");
  EXPECT_TRUE(queue.push(c));
  EXPECT_EQ(queue.pop(), "b");
  EXPECT_EQ(queue.pop(), "c");
  EXPECT_EQ(queue.pop(), std::nullopt);
}

TEST(SpscQueue, CarriesEverythingInOrderBetweenTwoThreads) {
  SpscQueue<int> queue(7);
  constexpr int kMany = 20000;
  std::thread producer([&] {
    for (int i = 0; i < kMany; ++i) {
      int value = i;
      while (!queue.push(value)) std::this_thread::yield();
    }
  });
  for (int expected = 0; expected < kMany;) {
    const auto got = queue.pop();
    if (!got) {
      std::this_thread::yield();
      continue;
    }
    ASSERT_EQ(*got, expected++);
  }
  producer.join();
}

}  // namespace
}  // namespace foretoken
