// Transport: moves frames between processes and does not read them. Sending never
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
  bool delimited = false;  // it sent an empty part first: one goes before the answer
  // A REQ client, or one that does not say what it is and may be one: an answer is one message.
  bool takes_one = false;
  // And before that the part ZMQ_REQ_CORRELATE asks back, if the client set it.
  std::string correlation = {};
  auto operator<=>(const Peer&) const = default;
};

// What happened to a message. kUnknown: that connection is gone.
enum class SendResult : std::uint8_t { kSent, kBusy, kUnknown };

// What a message is about, for the report that it was lost: opaque, chosen by its sender. Two
// words, so that the id of a request fits, and which of several series about it. {}: its sender
// needs no report.
struct Ticket {
  std::uint64_t high = 0, low = 0;
  std::uint32_t series = 0;
  auto operator<=>(const Ticket&) const = default;
};

enum class DeliveryKind : std::uint8_t {
  kMessage,
  // Reports of a bus (common/runtime/outbox.h), with the ticket of a message and no frames:
  kUndelivered,  // it found no connection: the peer is gone, and with it all that waited for it
  kDropped,      // it was lost: no room, or the peer took nothing for too long
  kClosed,       // a link through shared memory is over; its only frame says why
};

struct Delivery {
  DeliveryKind kind = DeliveryKind::kMessage;
  Peer peer;
  Frames frames;
  Ticket ticket = {};
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
