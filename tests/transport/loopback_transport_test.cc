#include "tests/loopback/loopback_transport.h"

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

// A server, a client that dials it, and whatever is sent between them.
struct Pair {
  explicit Pair(const LoopbackFaults& faults = {}) {
    network.set_faults(faults);
    bound = server->bind("ipc://x", Door::kInternal);
    dialled = client->connect("ipc://x");
  }
  SendResult send(const std::string& text) {
    return client->send({.socket = dialled, .routing = {}}, {text});
  }
  std::vector<std::string> arrived() {
    std::vector<std::string> texts;
    while (auto delivery = server->receive(clock.now() + seconds(1)))
      texts.push_back(delivery->frames[0]);
    return texts;
  }
  ManualClock clock;
  LoopbackNetwork network{clock, 1};
  std::unique_ptr<LoopbackTransport> server = network.make_transport("a");
  std::unique_ptr<LoopbackTransport> client = network.make_transport("b");
  SocketId bound = 0, dialled = 0;
};

TEST(LoopbackNetwork, KeepsTheOrderOfAConnectionWhereItIsAskedTo) {
  const auto got = arrivals(1, {.max_delay = milliseconds(50), .in_order = true});
  EXPECT_EQ(got.size(), 100u);
  EXPECT_TRUE(std::is_sorted(got.begin(), got.end()));
}

TEST(LoopbackNetwork, CutsOneDirection) {
  Pair pair;
  ASSERT_EQ(pair.send("hello"), SendResult::kSent);
  const Peer back = pair.server->receive(TimePoint::min())->peer;
  pair.network.cut("b", "a");
  EXPECT_EQ(pair.send("lost"), SendResult::kSent);
  EXPECT_EQ(pair.server->send(back, {"arrives"}), SendResult::kSent);
  EXPECT_TRUE(pair.arrived().empty());
  EXPECT_EQ(pair.client->receive(TimePoint::min())->frames, Frames{"arrives"});
  pair.network.heal("b", "a");
  EXPECT_EQ(pair.send("again"), SendResult::kSent);
  EXPECT_EQ(pair.arrived(), std::vector<std::string>{"again"});
}

TEST(LoopbackNetwork, BoundsWhatIsOnItsWayOverAConnectionAndSaysSoAtOnceOrAfterwards) {
  Pair pair({.capacity = 2});
  EXPECT_EQ(pair.send("1"), SendResult::kSent);
  EXPECT_EQ(pair.send("2"), SendResult::kSent);
  EXPECT_EQ(pair.send("3"), SendResult::kBusy);
  EXPECT_EQ(pair.arrived(), (std::vector<std::string>{"1", "2"}));
  EXPECT_EQ(pair.send("4"), SendResult::kSent);
  EXPECT_EQ(pair.arrived(), std::vector<std::string>{"4"});
}

TEST(LoopbackNetwork, BreaksAConnectionWithWhatIsOnItsWayAndFreesItsName) {
  Pair pair;
  ASSERT_EQ(pair.send("hello"), SendResult::kSent);
  const Peer before = pair.server->receive(TimePoint::min())->peer;
  ASSERT_EQ(pair.send("lost"), SendResult::kSent);
  pair.network.break_connections("a", "b");
  EXPECT_EQ(pair.network.in_flight(), 0u);
  EXPECT_EQ(pair.server->send(before, {"to nobody"}), SendResult::kUnknown);
  ASSERT_EQ(pair.send("again"), SendResult::kSent);
  const auto again = pair.server->receive(TimePoint::min());
  EXPECT_EQ(again->frames, Frames{"again"});
  EXPECT_NE(again->peer, before);
}

TEST(LoopbackNetwork, SetsFaultsOfOneDirectionApart) {
  Pair pair;
  pair.network.set_faults("b", "a", {.drop = 1});
  EXPECT_EQ(pair.send("lost"), SendResult::kSent);
  EXPECT_EQ(pair.network.in_flight(), 0u);
}

TEST(LoopbackNetwork, TellsAnObserverOfAllThatIsSentAndArrives) {
  Pair pair({.capacity = 1});
  std::vector<LoopbackFate> fates;
  pair.network.set_observer([&](const LoopbackEvent& event) { fates.push_back(event.fate); });
  EXPECT_EQ(pair.send("1"), SendResult::kSent);
  EXPECT_EQ(pair.send("2"), SendResult::kBusy);
  EXPECT_TRUE(pair.server->receive(TimePoint::min()).has_value());
  EXPECT_EQ(fates, (std::vector{LoopbackFate::kSent, LoopbackFate::kBusy, LoopbackFate::kArrived}));
}

}  // namespace
}  // namespace foretoken
