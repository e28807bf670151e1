// Every transport, held to the contract.
#include "common/transport/zmq_transport.h"
#include "tests/loopback/loopback_transport.h"
#include "tests/transport/folder.h"
#include "tests/transport/later.h"
#include "tests/transport/transport_contract.h"

namespace foretoken {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TransportPair over_tcp() {
  return {nullptr,
          std::make_unique<ZmqTransport>(),
          std::make_unique<ZmqTransport>(),
          "tcp://127.0.0.1:*",
          later,
          steady_now};
}

TransportPair over_ipc() {
  auto folder = std::make_shared<Folder>();
  const std::string endpoint = "ipc://" + (*folder / "a");
  return {folder,
          std::make_unique<ZmqTransport>(),
          std::make_unique<ZmqTransport>(),
          endpoint,
          later,
          steady_now};
}

INSTANTIATE_TEST_SUITE_P(Tcp, TransportContract, ::testing::Values(over_tcp));
INSTANTIATE_TEST_SUITE_P(Ipc, TransportContract, ::testing::Values(over_ipc));

struct World {
  ManualClock clock;
  LoopbackNetwork network{clock, 42};
};

TransportPair over_loopback() {
  auto world = std::make_shared<World>();
  world->clock.set(TimePoint(seconds(100)));
  auto server = world->network.make_transport("a");
  auto client = world->network.make_transport("b");
  return {world,
          std::move(server),
          std::move(client),
          "tcp://127.0.0.1:*",
          [w = world.get()] { return w->clock.now() + seconds(10); },
          [w = world.get()] { return w->clock.now(); }};
}

TransportPair over_slow_loopback() {
  TransportPair pair = over_loopback();
  static_cast<World*>(pair.world.get())
      ->network.set_faults({0, 0, milliseconds(3), milliseconds(3)});
  return pair;
}

INSTANTIATE_TEST_SUITE_P(Loopback, TransportContract, ::testing::Values(over_loopback));
INSTANTIATE_TEST_SUITE_P(SlowLoopback, TransportContract, ::testing::Values(over_slow_loopback));

}  // namespace
}  // namespace foretoken
