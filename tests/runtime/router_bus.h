// A bus with the router's end of the wire, and the thread of the sockets, called by hand: what a
// worker says to its router on a manual clock.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/result.h"
#include "common/runtime/service.h"
#include "common/wire/codec.h"

namespace foretoken::test {

class RouterBus final : public Bus {
 public:
  TimePoint now() const override { return clock.now(); }
  SocketId bind(const std::string&, Door) override { return 1; }
  SocketId connect(const std::string&) override { return 1; }
  void close(SocketId) override {}
  std::string endpoint(SocketId) const override { return {}; }
  void send(const Peer&, Frames frames, const Posting& posting) override {
    sent.push_back(value_or_throw(wire::decode(frames)).message);
    postings.push_back(posting);
  }
  std::size_t n_waiting(SocketId) override { return waiting; }
  std::optional<Delivery> receive(TimePoint) override { return std::nullopt; }
  void add_pulse(Pulse pulse) override { pulses.push_back(std::move(pulse)); }
  void add_observer(SocketId, Observer observer) override {
    observers.push_back(std::move(observer));
  }

  // As the thread of the sockets does.
  SendResult send_directly(const Peer& to, const Frames& frames) {
    send(to, frames, {});
    return SendResult::kSent;
  }
  // How many heartbeats leave within this time while the work thread computes.
  int beats_within(Duration time) {
    sent.clear();
    for (const TimePoint end = now() + time; now() < end;
         clock.advance(std::chrono::milliseconds(10)))
      for (const Pulse& pulse : pulses)
        pulse(now(),
              [this](const Peer& to, const Frames& frames) { return send_directly(to, frames); });
    return n_sent<wire::Heartbeat>();
  }
  template <class M>
  int n_sent() const {
    int n = 0;
    for (const wire::Message& message : sent) n += std::holds_alternative<M>(message);
    return n;
  }

  ManualClock clock;
  std::size_t waiting = 0;
  std::vector<wire::Message> sent;
  std::vector<Posting> postings;  // of all that was sent
  std::vector<Pulse> pulses;
  std::vector<Observer> observers;
};

}  // namespace foretoken::test
