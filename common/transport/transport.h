// Transport: moves frames between processes and knows nothing of what is in them. Sending never
// blocks, and its outcome cannot be ignored; receiving waits until a deadline. Queues are bounded,
// parts and sizes limited, by its implementation. One thread owns a transport and calls
// everything but wake().
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/bytes.h"
#include "common/base/clock.h"

namespace foretoken {

using SocketId = std::uint32_t;

// Where an answer goes: a socket, and on a bound one the connection. Opaque; who a peer claims to
// be is the message's business.
struct Peer {
  SocketId socket = 0;
  std::string routing;     // empty on a connected socket
  bool delimited = false;  // a REQ client: an empty part goes before the answer
  // And before that the part ZMQ_REQ_CORRELATE asks back, if the client set it.
  std::string correlation = {};
  auto operator<=>(const Peer&) const = default;
};

// What happened to a message. kUnknown: that connection is gone.
enum class SendResult : std::uint8_t { kSent, kBusy, kUnknown };

enum class DeliveryKind : std::uint8_t {
  kMessage,
  kUndelivered,  // these frames, handed over earlier, found no connection: the peer is gone
  kDropped,      // these frames, handed over earlier, found the connection's queue full, or not yet
                 // connected
  kClosed,       // a link through shared memory is over; its only frame says why
};

struct Delivery {
  DeliveryKind kind = DeliveryKind::kMessage;
  Peer peer;
  Frames frames;
  std::string user;  // name of the key it authenticated with ("draft:draft-0"); empty without CURVE
  TimePoint arrived{};  // when the thread of the sockets took it; not set by transports
};

enum class Door : std::uint8_t {
  kInternal,  // other services: parts up to 4 MiB
  kClient,    // any client: parts up to 1 MiB, REQ clients welcome; a message of a wrong shape is
              // delivered, cut to kMaxParts, so that an error can say what is wrong with it
  kDraft,     // a draft's targets: as kInternal, with a short queue to send, for what is late is
              // worthless
};
inline constexpr std::size_t kDoors = 3;
// What may wait for one client that does not read, beyond what its connection holds. Hundreds of
// streams share a connection, and a round of them is one burst: room for a second or so of that,
// some 16,384 pieces without log probabilities.
inline constexpr std::size_t kMaxWaitingBytes = std::size_t{4} << 20;
// How long it may take none of it.
inline constexpr Duration kWaitingPatience = std::chrono::seconds(10);

constexpr std::string_view name_of(Door door) {
  return door == Door::kClient ? "client" : door == Door::kDraft ? "draft" : "internal";
}

class Transport {
 public:
  virtual ~Transport() = default;
  // Endpoints: ipc://PATH, tcp://NUMERIC-ADDRESS:PORT (port * = any free one), inproc://NAME.
  // Throws FatalError.
  virtual SocketId bind(const std::string& endpoint, Door door) = 0;
  // Connects in the background and reconnects for ever; messages wait only for an established
  // connection.
  virtual SocketId connect(const std::string& endpoint) = 0;
  // The same to a door of this kind: both ends of a link keep queues of one length.
  virtual SocketId connect(const std::string& endpoint, Door /*door*/) { return connect(endpoint); }
  virtual void close(SocketId socket) = 0;
  // The real address of a bound socket, wildcards resolved.
  virtual std::string endpoint(SocketId socket) const = 0;
  [[nodiscard]] virtual SendResult send(const Peer& to, const Frames& frames) = 0;
  // Next message of any socket, fairly; nothing when the deadline passed or wake() was called.
  virtual std::optional<Delivery> receive(TimePoint deadline) = 0;
  // While they are held, what clients send stays in their connections.
  virtual void hold_clients(bool /*held*/) {}
  // From any thread: makes a waiting receive() return.
  virtual void wake() = 0;
};

}  // namespace foretoken
