// A network inside one process, on a manual clock: the simulator's wire. Messages are delayed,
// dropped, duplicated and reordered by a seeded generator, connections cut and restored by the
// test. Same seed, same story. One thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/transport/transport.h"

namespace foretoken {

// Probabilities per message. Delay is uniform in [min_delay, max_delay]: unequal delays reorder.
struct LoopbackFaults {
  double drop = 0;
  double duplicate = 0;
  Duration min_delay{};
  Duration max_delay{};
};

class LoopbackTransport;

// Owns the messages in flight. Must outlive its transports.
class LoopbackNetwork {
 public:
  LoopbackNetwork(ManualClock& clock, std::uint64_t seed) : clock_(clock), random_(seed) {}
  // `host` is for partitions and kills: one per simulated process.
  std::unique_ptr<LoopbackTransport> make_transport(const std::string& host);
  void set_faults(const LoopbackFaults& faults) { faults_ = faults; }
  // Nothing passes between the two until healed.
  void partition(const std::string& a, const std::string& b) { cut_.insert(std::minmax(a, b)); }
  void heal() { cut_.clear(); }
  // When the next message in flight arrives; nothing if none is.
  std::optional<TimePoint> next_arrival() const;
  std::size_t in_flight() const { return flight_.size(); }

 private:
  friend class LoopbackTransport;
  struct Connection {  // one per connect(): the dialling end and, once the name is bound, the
                       // listening end
    LoopbackTransport* dialler = nullptr;
    SocketId dial_socket = 0;
    std::string name;
  };
  struct Listener {
    LoopbackTransport* owner = nullptr;
    SocketId socket = 0;
  };
  struct Flight {
    TimePoint due;
    std::uint64_t order = 0;
    LoopbackTransport* to = nullptr;
    Delivery delivery;
  };

  void launch(LoopbackTransport* from, LoopbackTransport* to, const Delivery& delivery);
  bool severed(const std::string& a, const std::string& b) const {
    return cut_.contains(std::minmax(a, b));
  }

  ManualClock& clock_;
  std::mt19937_64 random_;
  LoopbackFaults faults_;
  std::set<std::pair<std::string, std::string>> cut_;
  std::map<std::string, Listener> listeners_;
  std::map<std::uint64_t, Connection> connections_;  // number = routing of the listening end
  std::vector<Flight> flight_;
  std::uint64_t last_number_ = 0;
};

class LoopbackTransport final : public Transport {
 public:
  LoopbackTransport(LoopbackNetwork& network, std::string host)
      : network_(network), host_(std::move(host)) {}
  ~LoopbackTransport() override;  // everything in flight to it is lost, its connections are gone

  SocketId bind(const std::string& endpoint, Door door) override;
  SocketId connect(const std::string& endpoint) override;
  void close(SocketId socket) override;
  std::string endpoint(SocketId socket) const override;
  [[nodiscard]] SendResult send(const Peer& to, const Frames& frames) override;
  // Lets the clock run to the arrival of the next message, at most to the deadline, if that lies
  // ahead and is finite.
  std::optional<Delivery> receive(TimePoint deadline) override;
  void wake() override { woken_ = true; }

 private:
  friend class LoopbackNetwork;
  struct Socket {
    std::string endpoint;
    Door door = Door::kInternal;
    std::uint64_t connection = 0;  // 0 on a bound socket
  };
  LoopbackNetwork& network_;
  std::string host_;
  std::map<SocketId, Socket> sockets_;
  SocketId last_socket_ = 0;
  bool woken_ = false;
};

}  // namespace foretoken
