// The real transport, on ZeroMQ. Bound sockets are ROUTERs that make the routing ids, connected
// ones DEALERs. All socket options stand in zmq_transport.cc, each with its reason. One context per
// process; one thread calls everything but wake().
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/transport/transport.h"

namespace foretoken {

struct ZmqOptions {
  std::string curve_secret_file;  // empty = no CURVE
  std::string curve_peers_file;
  bool insecure = false;                                // tcp beyond loopback without CURVE
  bool watch_connections = false;                       // of connected sockets: see connection()
  std::int64_t max_part_bytes = std::int64_t{4} << 20;  // that a connected socket takes
};

// Why a door takes no connection of ours: each try would end in the same way.
enum class Refusal : std::uint8_t {
  kNone,
  kUnsaid,  // it ends each connection in the greeting, as one may that wants another key or none
  kKey,     // it wants a key, or another one
  kNoKeys,  // it has no keys, and we have one
};

// A connected socket as far as receive() has seen it.
struct ConnectionState {
  bool up = false;                   // greeted on both sides: what is sent goes to a peer
  std::uint64_t losses = 0;          // how often it was up and then gone
  Refusal refused = Refusal::kNone;  // since it was last up; never on ipc
};

// Counts since start, written by the owning thread, readable from any.
struct DoorCounters {
  std::atomic<std::uint64_t> received{0};
  std::atomic<std::uint64_t> sent{0};
  std::atomic<std::uint64_t> busy{0};                // not sent: no room, or not connected yet
  std::atomic<std::uint64_t> unknown_peer{0};        // not sent: that connection is gone
  std::atomic<std::uint64_t> malformed{0};           // received in a shape that no message has
  std::atomic<std::uint64_t> handshakes_refused{0};  // a key that is not listed, or none at all
};

struct TransportCounters {
  std::array<DoorCounters, kDoors> doors;
  DoorCounters& of(Door door) { return doors[static_cast<std::size_t>(door)]; }
  const DoorCounters& of(Door door) const { return doors[static_cast<std::size_t>(door)]; }
};

class ZmqTransport final : public Transport {
 public:
  explicit ZmqTransport(const ZmqOptions& options = {});  // throws FatalError on unreadable keys
  ~ZmqTransport() override;

  SocketId bind(const std::string& endpoint, Door door) override;
  SocketId connect(const std::string& endpoint) override {
    return connect(endpoint, Door::kInternal);
  }
  SocketId connect(const std::string& endpoint, Door door) override;
  void close(SocketId socket) override;
  std::string endpoint(SocketId socket) const override;
  [[nodiscard]] SendResult send(const Peer& to, const Frames& frames) override;
  std::optional<Delivery> receive(TimePoint deadline) override;
  void hold_clients(bool held) override;
  void wake() override;
  // Only with ZmqOptions::watch_connections, where receive() returns early, with nothing, when one
  // of these changed. What the lost connection had brought is still delivered.
  ConnectionState connection(SocketId socket) const;
  // Lives as long as its holder.
  std::shared_ptr<const TransportCounters> counters() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace foretoken
