// A network inside one process, on a manual clock: the simulator's wire. Messages are delayed,
// dropped, duplicated and reordered by a seeded generator, queues are bounded, connections cut,
// broken and restored by the test. Same seed, same story. One thread.
#pragma once

#include <cstdint>
#include <functional>
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

// Probabilities per message. Delay is uniform in [min_delay, max_delay]: unequal delays reorder,
// unless `in_order` says that this connection keeps its order.
struct LoopbackFaults {
  double drop = 0;
  double duplicate = 0;
  Duration min_delay{};
  Duration max_delay{};
  bool in_order = false;
  std::size_t capacity = 0;  // messages on their way over a connection, one direction; 0: no bound
};

// What became of one send(), or one delivery.
enum class LoopbackFate : std::uint8_t { kSent, kLost, kTwice, kBusy, kNoPeer, kArrived };

struct LoopbackEvent {
  TimePoint at;
  const std::string& from;  // hosts; of an arrival `from` is empty
  const std::string& to;
  LoopbackFate fate;
  const Frames& frames;
};

class LoopbackTransport;

// Owns what all transports share. Must outlive them.
class LoopbackNetwork {
 public:
  LoopbackNetwork(ManualClock& clock, std::uint64_t seed) : clock_(clock), random_(seed) {}
  // `host` is for partitions and kills: one per simulated process.
  std::unique_ptr<LoopbackTransport> make_transport(const std::string& host);
  void set_faults(const LoopbackFaults& faults) { faults_ = faults; }
  // Of what `from` sends to `to`, instead of the common ones.
  void set_faults(const std::string& from, const std::string& to, const LoopbackFaults& faults) {
    own_faults_[{from, to}] = faults;
  }
  // Nothing passes between the two until healed.
  void partition(const std::string& a, const std::string& b) { cut(a, b), cut(b, a); }
  // Nothing passes from the one to the other.
  void cut(const std::string& from, const std::string& to) { cut_.insert({from, to}); }
  void heal() { cut_.clear(); }
  void heal(const std::string& from, const std::string& to) { cut_.erase({from, to}); }
  // Every connection between the two is made anew: what was on its way is lost, and a bound socket
  // knows the other end by another name from now on.
  void break_connections(const std::string& a, const std::string& b);
  // When the next message in flight arrives; nothing if none is.
  std::optional<TimePoint> next_arrival() const;
  std::size_t in_flight() const { return n_in_flight_; }
  // Hears of everything that is sent and that arrives.
  void set_observer(std::function<void(const LoopbackEvent&)> observer) {
    observer_ = std::move(observer);
  }

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
  // A direction of a connection: its number, and whether towards the dialling end.
  using Lane = std::pair<std::uint64_t, bool>;
  struct LaneState {
    std::size_t n = 0;  // on their way
    TimePoint last_due{};
  };

  SendResult launch(LoopbackTransport& from,
                    LoopbackTransport& to,
                    Lane lane,
                    const Delivery& delivery);
  SendResult refuse(const LoopbackTransport& from, const Frames& frames, SendResult why);
  const LoopbackFaults& faults_of(const std::string& from, const std::string& to) const;
  void renumber(std::uint64_t number);
  void note(const std::string& from,
            const std::string& to,
            LoopbackFate fate,
            const Frames& frames);

  ManualClock& clock_;
  std::mt19937_64 random_;
  LoopbackFaults faults_;
  std::map<std::pair<std::string, std::string>, LoopbackFaults> own_faults_;
  std::set<std::pair<std::string, std::string>> cut_;
  std::set<LoopbackTransport*> transports_;
  std::map<std::string, Listener> listeners_;
  std::map<std::uint64_t, Connection> connections_;  // number = routing of the listening end
  std::map<Lane, LaneState> lanes_;
  std::size_t n_in_flight_ = 0;
  std::uint64_t last_number_ = 0;
  std::uint64_t last_order_ = 0;
  std::function<void(const LoopbackEvent&)> observer_;
};

class LoopbackTransport final : public Transport {
 public:
  LoopbackTransport(LoopbackNetwork& network, std::string host);
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

  // When the next message for it arrives; nothing if none is on its way.
  std::optional<TimePoint> next_arrival() const;
  const std::string& host() const { return host_; }

 private:
  friend class LoopbackNetwork;
  struct Socket {
    std::string endpoint;
    Door door = Door::kInternal;
    std::uint64_t connection = 0;  // 0 on a bound socket
  };
  struct Flight {
    LoopbackNetwork::Lane lane;
    Delivery delivery;
  };
  using Flights = std::map<std::pair<TimePoint, std::uint64_t>, Flight>;  // by arrival and order
  Flights::iterator forget(Flights::iterator flight);

  LoopbackNetwork& network_;
  std::string host_;
  std::map<SocketId, Socket> sockets_;
  SocketId last_socket_ = 0;
  Flights flights_;  // to here
  bool woken_ = false;
};

}  // namespace foretoken
