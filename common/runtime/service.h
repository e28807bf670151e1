// What a service implements and what it is given. A service is blind to transport, threads and systemd: the runtime runs it
// on the work thread with real sockets, a simulation on one thread with a manual clock. Messages in, calls, messages out.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "common/transport/transport.h"

namespace foretoken {

// A service's way out, used from the work thread only. Bounded: send() says kBusy rather than grow. That a peer is gone may
// come later, as Service::on_undelivered.
class Bus {
 public:
  virtual ~Bus() = default;
  virtual TimePoint now() const = 0;
  virtual SocketId bind(const std::string& endpoint, Door door) = 0;  // throws FatalError
  virtual SocketId connect(const std::string& endpoint) = 0;          // throws FatalError if it is no endpoint
  virtual void close(SocketId socket) = 0;
  virtual std::string endpoint(SocketId socket) const = 0;
  [[nodiscard]] virtual SendResult send(const Peer& to, Frames frames) = 0;
  // Whatever arrived; waits until the deadline for it (one in the past: does not wait). For work that needs answers while
  // on_turn runs, such as a step that waits a little for proposals; everything else comes through on_message.
  virtual std::optional<Delivery> receive(TimePoint deadline) = 0;
};

class Service {
 public:
  virtual ~Service() = default;
  // Binds, connects, says hello. Throws FatalError. READY is reported once ready() is true.
  virtual void start(Bus& bus) = 0;
  virtual bool ready() const { return true; }
  virtual void on_message(Delivery delivery) = 0;
  virtual void on_undelivered(const Peer& /*peer*/) {}
  // One turn of work: a step, timers, heartbeats. Returns when it wants the next turn: `now` = at once, as there is more to
  // do. A turn also follows every batch of messages. The watchdog is fed after each turn, so a turn must end.
  virtual TimePoint on_turn(TimePoint now) = 0;
  // SIGTERM: refuse new work, finish what runs. After `deadline` the process ends anyway.
  virtual void drain(TimePoint deadline) = 0;
  virtual bool drained() const = 0;
  // Short state for STATUS= and people: "3 sequences, 2 drafts".
  virtual std::string status() const = 0;
};

inline void dispatch(Service& service, Delivery delivery) {
  if (delivery.kind == DeliveryKind::kUndelivered) return service.on_undelivered(delivery.peer);
  service.on_message(std::move(delivery));
}

}  // namespace foretoken
