// What a service implements and what it is given. A service is blind to transport, threads and
// systemd: the runtime runs it on the work thread with real sockets, a simulation on one thread
// with a manual clock. Messages in, calls, messages out.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "common/runtime/posting.h"
#include "common/runtime/progress.h"
#include "common/transport/transport.h"

namespace foretoken {

// A service's way out, used from the work thread only. Bounded: what a full socket refuses waits as
// its posting says; what is lost comes back as its ticket, as Service::on_undelivered or
// on_dropped.
class Bus {
 public:
  // What goes on whatever the work thread computes: called on the thread that owns the sockets,
  // with a way to send from there. Returns when it wants to be called again.
  using DirectSend = std::function<SendResult(const Peer&, const Frames&)>;
  using Pulse = std::function<TimePoint(TimePoint now, const DirectSend& send)>;
  // Sees what arrives at a socket, on the thread that owns the sockets, while the inbox of the work
  // thread has room. The work thread receives it as well, when it comes to it. Returns by when the
  // pulses are to be called.
  using Observer =
      std::function<TimePoint(const Delivery& delivery, TimePoint now, const DirectSend& send)>;

  virtual ~Bus() = default;
  virtual TimePoint now() const = 0;
  virtual SocketId bind(const std::string& endpoint, Door door) = 0;  // throws FatalError
  virtual SocketId connect(
      const std::string& endpoint) = 0;  // throws FatalError if it is no endpoint
  virtual SocketId connect(const std::string& endpoint, Door /*door*/) { return connect(endpoint); }
  virtual void close(SocketId socket) = 0;
  // Ends one connection of a bound socket, where the transport can.
  virtual void hang_up(const Peer& /*peer*/) {}
  virtual std::string endpoint(SocketId socket) const = 0;
  virtual void send(const Peer& to, Frames frames, const Posting& posting) = 0;
  // At once or not at all, without a report: over a link through shared memory, beside which its
  // sender has another way.
  [[nodiscard]] virtual SendResult try_send(const Peer& /*to*/, const Frames& /*frames*/) {
    return SendResult::kUnknown;
  }
  // What still waits for this peer is not sent any more, and not reported.
  virtual void forget(const Peer& /*peer*/) {}
  // Of what was sent over this socket: what it has not taken yet.
  virtual std::size_t n_waiting(SocketId /*socket*/) { return 0; }
  // Whatever arrived; waits until the deadline for it (one in the past: does not wait). For work
  // that needs answers while on_turn runs, such as a step that waits a little for proposals: pass
  // what it is not interested in to dispatch().
  virtual std::optional<Delivery> receive(TimePoint deadline) = 0;
  // From any thread: the work thread's wait ends, or its next one does.
  virtual void wake() {}
  // A bus without a thread of its own leaves it to the work thread to be on time.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): buses with one keep it
  virtual void add_pulse(Pulse /*pulse*/) {}
  // Whatever arrived before this has been received: what a silence is measured against, for
  // messages that wait to be read are no silence.
  virtual TimePoint received_until() const { return now(); }
  // A bus without a socket thread has nothing to call earlier.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): buses with one keep it
  virtual void add_observer(SocketId /*socket*/, Observer /*observer*/) {}
  Progress& progress() { return progress_; }

 private:
  Progress progress_;
};

class Service {
 public:
  virtual ~Service() = default;
  // Binds, connects, says hello. Throws FatalError. READY is reported once ready() is true.
  virtual void start(Bus& bus) = 0;
  virtual bool ready() const { return true; }
  virtual void on_message(Delivery delivery) = 0;
  // The peer is gone, and with it all that waited for it.
  virtual void on_undelivered(const Peer& /*peer*/, Ticket /*ticket*/) {}
  // It reads too slowly, or its connection is not up yet: the message of this ticket is lost, and
  // those of its series behind it; others may pass.
  virtual void on_dropped(const Peer& /*peer*/, Ticket /*ticket*/) {}
  // A link through shared memory is over, and why; its peer may live on and be reached as before.
  virtual void on_closed(const Peer& /*peer*/, const std::string& /*why*/) {}
  // One turn of work: a step, timers, heartbeats. Returns when it wants the next turn: `now` = at
  // once, as there is more to do. A turn also follows every batch of messages. A turn must end: one
  // that lasts beyond the bound of Progress is stuck, and the watchdog is no longer fed.
  virtual TimePoint on_turn(TimePoint now) = 0;
  // SIGTERM: refuse new work, finish what runs. After `deadline` the process ends anyway.
  virtual void drain(TimePoint deadline) = 0;
  virtual bool drained() const = 0;
  // The loop is over, whatever ended it. The bus ends before the service does: what a service runs
  // beside the work thread and uses the bus must have ended when this returns.
  virtual void on_end() {}
  // Short state for STATUS= and people: "3 sequences, 2 drafts".
  virtual std::string status() const = 0;
};

inline void dispatch(Service& service, Delivery delivery) {
  if (delivery.kind == DeliveryKind::kUndelivered)
    return service.on_undelivered(delivery.peer, delivery.ticket);
  if (delivery.kind == DeliveryKind::kDropped)
    return service.on_dropped(delivery.peer, delivery.ticket);
  if (delivery.kind == DeliveryKind::kClosed)
    return service.on_closed(delivery.peer, delivery.frames.front());
  service.on_message(std::move(delivery));
}

}  // namespace foretoken
