// A simulated process: a service on a fiber of its own, with its wire, its clock and its pace. It
// turns as the service loop turns: messages, a turn of work, a wait. A step takes simulated time
// while others go on, and while its own pulses (heartbeats) leave, as from the thread of the
// sockets. It can be stopped and continued, its clock can jump ahead; it is killed by being
// destroyed, wherever it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/runtime/outbox.h"
#include "common/runtime/service.h"
#include "tests/loopback/loopback_transport.h"
#include "tests/simulation/fiber.h"

namespace foretoken::test {

class Host;

// What runs there. Owns the service and all that the service borrows.
class Program {
 public:
  virtual ~Program() = default;
  virtual Service& service() = 0;
  // What it holds that it should not when nothing is asked of it; empty if nothing.
  virtual std::string leftovers() { return {}; }
  // Rules of its own state that must hold at any time; empty if they do.
  virtual std::string broken_rule() { return {}; }
};

class Host final : public Bus {
 public:
  // `clock_ahead`: of the world's clock; what two hosts call now has nothing in common.
  Host(ManualClock& clock,
       LoopbackNetwork& network,
       const std::string& name,
       Duration clock_ahead,
       const WaitingLimits& client_limits);
  ~Host() override;

  void run(std::unique_ptr<Program> program);
  Program& program() { return *program_; }
  const std::string& name() const { return name_; }

  // For the world: when this host goes on (nothing: stopped or over), and let it.
  std::optional<TimePoint> due() const;
  void go_on();
  bool is_over() const { return fiber_->is_over(); }  // drained

  void stop();  // neither reads nor sends nor beats
  void resume();
  bool is_stopped() const { return stopped_at_.has_value(); }
  void jump_clock(Duration ahead) { ahead_ += ahead; }
  void drain(Duration at_most);

  // From inside the program: this much simulated time passes, messages pile up meanwhile.
  void work(Duration took);

  // Reports of a lost message that had a ticket.
  std::uint64_t n_lost_series() const { return n_lost_series_; }

  // Bus
  TimePoint now() const override { return clock_.now() + ahead_; }
  SocketId bind(const std::string& endpoint, Door door) override;
  SocketId connect(const std::string& endpoint) override {
    return connect(endpoint, Door::kInternal);
  }
  SocketId connect(const std::string& endpoint, Door door) override;
  void close(SocketId socket) override;
  std::string endpoint(SocketId socket) const override { return transport_->endpoint(socket); }
  void send(const Peer& to, Frames frames, const Posting& posting) override {
    outbox_.send(to, std::move(frames), posting, now());
  }
  [[nodiscard]] SendResult try_send(const Peer& to, const Frames& frames) override {
    return transport_->send(to, frames);
  }
  void forget(const Peer& peer) override { outbox_.forget(peer); }
  std::size_t n_waiting(SocketId socket) override { return outbox_.n_waiting(socket); }
  std::optional<Delivery> receive(TimePoint deadline) override;
  void add_pulse(Pulse pulse) override;
  void add_observer(SocketId socket, Observer observer) override {
    observers_.emplace_back(socket, std::move(observer));
  }
  TimePoint received_until() const override;

 private:
  void loop();
  TimePoint in_world(TimePoint own) const;
  void beat();
  void listen();
  std::optional<Delivery> take();
  void wait(TimePoint until);  // for a message, in this host's time

  ManualClock& clock_;
  std::string name_;
  Duration ahead_;
  std::unique_ptr<LoopbackTransport> transport_;
  std::unique_ptr<Program> program_;
  std::unique_ptr<Fiber> fiber_;
  bool works_ = true;     // until work_until_, whatever arrives; else it waits for a message
  TimePoint work_until_;  // in the world's time
  TimePoint wait_until_;  // in its own
  const DirectSend send_directly_;  // as from the thread of the sockets, as what follows
  Outbox outbox_;
  std::uint64_t n_lost_series_ = 0;
  std::vector<Pulse> pulses_;
  std::vector<std::pair<SocketId, Observer>> observers_;
  std::deque<Delivery> inbox_;               // arrived while the work thread computes
  TimePoint next_pulse_ = TimePoint::max();  // in its own
  std::optional<TimePoint> stopped_at_;
  std::optional<Duration> drain_within_;
};

}  // namespace foretoken::test
