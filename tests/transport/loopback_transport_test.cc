#include "common/transport/loopback_transport.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <vector>

namespace foretoken {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Sends a hundred numbered messages and returns the numbers in the order they came.
std::vector<int> arrivals(std::uint64_t seed, const LoopbackFaults& faults) {
  ManualClock clock;
  LoopbackNetwork network(clock, seed);
  auto server = network.make_transport("a");
  auto client = network.make_transport("b");
  const SocketId bound = server->bind("ipc://x", Door::kInternal);
  const SocketId dialled = client->connect(server->endpoint(bound));
  network.set_faults(faults);
  for (int i = 0; i < 100; ++i)
    EXPECT_EQ(client->send({dialled, "", false}, {std::to_string(i)}), SendResult::kSent);
  std::vector<int> got;
  while (auto delivery = server->receive(clock.now() + seconds(1)))
    got.push_back(std::stoi(delivery->frames[0]));
  return got;
}

TEST(LoopbackNetwork, TellsTheSameStoryForTheSameSeed) {
  const LoopbackFaults faults{0.2, 0.2, milliseconds(1), milliseconds(50)};
  EXPECT_EQ(arrivals(7, faults), arrivals(7, faults));
  EXPECT_NE(arrivals(7, faults), arrivals(8, faults));
}

TEST(LoopbackNetwork, DropsDuplicatesAndReorders) {
  const auto dropped = arrivals(1, {0.3, 0, {}, {}});
  EXPECT_LT(dropped.size(), 90u);
  EXPECT_TRUE(std::is_sorted(dropped.begin(), dropped.end()));
  EXPECT_GT(arrivals(1, {0, 0.3, {}, {}}).size(), 110u);
  const auto reordered = arrivals(1, {0, 0, milliseconds(1), milliseconds(50)});
  EXPECT_EQ(reordered.size(), 100u);
  EXPECT_FALSE(std::is_sorted(reordered.begin(), reordered.end()));
}

TEST(LoopbackNetwork, PartitionsAndHeals) {
  ManualClock clock;
  LoopbackNetwork network(clock, 1);
  auto server = network.make_transport("a");
  auto client = network.make_transport("b");
  const SocketId bound = server->bind("ipc://x", Door::kInternal);
  const SocketId dialled = client->connect(server->endpoint(bound));
  network.partition("b", "a");
  EXPECT_EQ(client->send({dialled, "", false}, {"lost"}),
            SendResult::kSent);  // sent is not delivered
  EXPECT_EQ(network.in_flight(), 0u);
  network.heal();
  EXPECT_EQ(client->send({dialled, "", false}, {"found"}), SendResult::kSent);
  EXPECT_EQ(server->receive(TimePoint::min())->frames, Frames{"found"});
}

TEST(LoopbackNetwork, LosesWhatWasInFlightToAProcessThatDied) {
  ManualClock clock;
  LoopbackNetwork network(clock, 1);
  auto server = network.make_transport("a");
  auto client = network.make_transport("b");
  const SocketId bound = server->bind("ipc://x", Door::kInternal);
  const SocketId dialled = client->connect(server->endpoint(bound));
  EXPECT_EQ(client->send({dialled, "", false}, {"x"}), SendResult::kSent);
  server.reset();
  EXPECT_EQ(network.in_flight(), 0u);
  EXPECT_EQ(client->send({dialled, "", false}, {"x"}), SendResult::kBusy);
  server =
      network.make_transport("a");  // the next life takes the same address and the client finds it
  server->bind("ipc://x", Door::kInternal);
  EXPECT_EQ(client->send({dialled, "", false}, {"again"}), SendResult::kSent);
  EXPECT_EQ(server->receive(TimePoint::min())->frames, Frames{"again"});
}

TEST(LoopbackNetwork, LetsTheClockRunOnlyAsFarAsAsked) {
  ManualClock clock;
  LoopbackNetwork network(clock, 1);
  auto server = network.make_transport("a");
  server->bind("ipc://x", Door::kInternal);
  EXPECT_FALSE(server->receive(clock.now() + milliseconds(5)).has_value());
  EXPECT_EQ(clock.now().time_since_epoch(), milliseconds(5));
  EXPECT_FALSE(server->receive(TimePoint::max()).has_value());
  EXPECT_EQ(clock.now().time_since_epoch(), milliseconds(5));
}

}  // namespace
}  // namespace foretoken
