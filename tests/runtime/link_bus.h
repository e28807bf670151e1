// A bus with the router's end of the wire, and the thread of the sockets, called by hand: what a
// worker says to its router on a manual clock.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/result.h"
#include "common/runtime/service.h"
#include "common/wire/codec.h"

namespace foretoken::test {

class LinkBus final : public Bus {
 public:
  TimePoint now() const override { return clock.now(); }
  SocketId bind(const std::string&, Door) override { return 1; }
  SocketId connect(const std::string&) override { return 1; }
  void close(SocketId) override {}
  std::string endpoint(SocketId) const override { return {}; }
  SendResult send(const Peer&, Frames frames) override {
    if (is_full) return SendResult::kBusy;
    sent.push_back(value_or_throw(wire::decode(frames)).message);
    return SendResult::kSent;
  }
  std::optional<Delivery> receive(TimePoint) override { return std::nullopt; }
  void add_pulse(Pulse pulse) override { pulses.push_back(std::move(pulse)); }
  void add_observer(SocketId, Observer observer) override {
    observers.push_back(std::move(observer));
  }

  // How many heartbeats leave within this time while the work thread computes.
  int beats_within(Duration time) {
    sent.clear();
    for (const TimePoint end = now() + time; now() < end;
         clock.advance(std::chrono::milliseconds(10)))
      for (const Pulse& pulse : pulses)
        pulse(now(), [this](const Peer& to, const Frames& frames) { return send(to, frames); });
    return n_sent<wire::Heartbeat>();
  }
  template <class M>
  int n_sent() const {
    int n = 0;
    for (const wire::Message& message : sent) n += std::holds_alternative<M>(message);
    return n;
  }

  ManualClock clock;
  bool is_full = false;
  std::vector<wire::Message> sent;
  std::vector<Pulse> pulses;
  std::vector<Observer> observers;
};

}  // namespace foretoken::test
