// A bus without threads: straight to a transport, time from a clock. For simulations and tests of
// services.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "common/runtime/service.h"

namespace foretoken {

class DirectBus final : public Bus {
 public:
  DirectBus(Transport& transport, const Clock& clock) : transport_(transport), clock_(clock) {}
  TimePoint now() const override { return clock_.now(); }
  SocketId bind(const std::string& endpoint, Door door) override {
    return transport_.bind(endpoint, door);
  }
  SocketId connect(const std::string& endpoint) override { return transport_.connect(endpoint); }
  SocketId connect(const std::string& endpoint, Door door) override {
    return transport_.connect(endpoint, door);
  }
  void close(SocketId socket) override { transport_.close(socket); }
  std::string endpoint(SocketId socket) const override { return transport_.endpoint(socket); }
  [[nodiscard]] SendResult send(const Peer& to, Frames frames) override {
    return transport_.send(to, frames);
  }
  std::optional<Delivery> receive(TimePoint deadline) override {
    return transport_.receive(deadline);
  }

 private:
  Transport& transport_;
  const Clock& clock_;
};

}  // namespace foretoken
