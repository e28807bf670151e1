// Links through shared memory, between processes of one machine: the short way beside ZeroMQ for
// messages that a peer waits for. A connection is a Unix socket over which each side hands the
// other a SharedRegion with its ring; afterwards the socket is the bell that wakes a sleeping peer,
// and its end is the peer's end, noticed at once. Nothing here has a name but the door's socket
// file and the lock beside it, so no memory is left behind by a process that is killed.
//
// Messages may be lost with their link, and a link with its peer: their sender sends them by
// another way. A peer that scribbles, does not read, or rings without a word loses its link, and
// costs no other peer its own. Everything runs on the caller's thread and never waits; a sleeper
// adds the descriptors to its own poll. It uses no message. This is the table: who is at which
// door, whose turn it is to be read, who goes when all places are taken; MemoryLink is one of them.
#pragma once

#include <poll.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/transport/memory_door.h"
#include "common/transport/memory_link.h"
#include "common/transport/transport.h"

namespace foretoken {

class MemoryLinks {
 public:
  explicit MemoryLinks(MemoryLinkOptions options = {});
  MemoryLinks(const MemoryLinks&) = delete;
  MemoryLinks& operator=(const MemoryLinks&) = delete;

  // shm:///PATH, where PATH becomes a socket file for this user alone.
  static bool is_endpoint(std::string_view endpoint) {
    return endpoint.starts_with(MemoryDoor::kScheme);
  }
  // Ids are apart from those of every other transport.
  static bool is_socket(SocketId id) { return (id & kIdBit) != 0; }
  // Why this system has no such links; empty if it has. Tries one out.
  static std::string why_unavailable();

  SocketId bind(const std::string& endpoint);  // throws FatalError: another serves it
  SocketId connect(
      const std::string& endpoint);  // throws FatalError: no process serves it, or no memory
  void close(SocketId socket);
  void hang_up(const Peer& peer);  // one connection of a bound socket
  // kSent: in the ring. kBusy: no room, too large, or not greeted yet. kUnknown: that link is over.
  [[nodiscard]] SendResult send(const Peer& to, const Frames& frames);
  // A message, or the end of a link (kClosed, the reason is its only frame). Never waits.
  std::optional<Delivery> receive();

  // Before sleeping: asks peers to ring. False: there is something to receive, don't sleep.
  [[nodiscard]] bool fall_asleep();
  void add_to(std::vector<pollfd>& waiting) const;
  void wake_up();  // after sleeping
  bool is_idle() const { return doors_.empty() && links_.empty() && closed_.empty(); }

  std::shared_ptr<const MemoryLinkCounters> counters() const { return counters_; }

  static constexpr std::size_t kMaxLinks = 256;

 private:
  static constexpr SocketId kIdBit = 0x8000'0000;

  MemoryLink* find(const Peer& peer);
  void look(TimePoint now);  // at every socket: who comes, rings or leaves
  void accept_from(SocketId id, const MemoryDoor& door);
  bool make_room();
  std::unique_ptr<MemoryLink> new_link(Peer peer, MemoryLink::Origin origin, Fd socket) const;
  std::optional<Delivery> read_rings();
  void remove_closed();  // links that are over

  MemoryLinkOptions options_;
  std::shared_ptr<MemoryLinkCounters> counters_ = std::make_shared<MemoryLinkCounters>();
  std::map<SocketId, MemoryDoor> doors_;
  std::vector<std::unique_ptr<MemoryLink>> links_;
  std::deque<Delivery> closed_;
  std::size_t turn_ = 0;
  SocketId last_id_ = kIdBit;
  std::uint64_t last_routing_ = 0;
  std::uint32_t sleeps_ = 0;  // odd while asleep
  bool look_soon_ = false;
  TimePoint look_at_{};
};

}  // namespace foretoken
