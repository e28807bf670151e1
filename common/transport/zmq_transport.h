// The real transport, on ZeroMQ. Bound sockets are ROUTERs that make the routing ids, connected
// ones DEALERs. All socket options stand in zmq_transport.cc, each with its reason. One context per
// process; one thread calls everything but wake().
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/transport/transport.h"

namespace foretoken {

struct ZmqOptions {
  std::string curve_secret_file;  // empty = no CURVE
  std::string curve_peers_file;
  bool insecure = false;  // tcp beyond loopback without CURVE
};

// Counts since start; readable from the owning thread.
struct TransportCounters {
  std::uint64_t received = 0;
  std::uint64_t sent = 0;
  std::uint64_t busy = 0;
  std::uint64_t unknown_peer = 0;
  std::uint64_t too_many_parts = 0;
  std::uint64_t handshakes_refused = 0;
};

class ZmqTransport final : public Transport {
 public:
  explicit ZmqTransport(const ZmqOptions& options = {});  // throws FatalError on unreadable keys
  ~ZmqTransport() override;

  SocketId bind(const std::string& endpoint, Door door) override;
  SocketId connect(const std::string& endpoint) override;
  void close(SocketId socket) override;
  std::string endpoint(SocketId socket) const override;
  [[nodiscard]] SendResult send(const Peer& to, const Frames& frames) override;
  std::optional<Delivery> receive(TimePoint deadline) override;
  void wake() override;
  const TransportCounters& counters() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace foretoken
