// Links through shared memory, between processes of one machine: the short way beside ZeroMQ for
// messages that somebody waits for. A connection is a Unix socket over which each side hands the
// other a SharedRegion with its ring; afterwards the socket is the bell that wakes a sleeping peer,
// and its end is the peer's end, noticed at once. Nothing here has a name but the door's socket
// file and the lock beside it, so no memory is left behind by a process that is killed.
//
// Messages may be lost with their link, and a link with its peer: whoever needs them sends them by
// another way. A peer that scribbles, does not read, or rings without a word loses its link, and
// costs nobody else theirs. Everything runs on the caller's thread and never waits; a sleeper adds
// the descriptors to its own poll. It knows no message.
#pragma once

#include <poll.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/transport/transport.h"

namespace foretoken {

struct MemoryLinkOptions {
  std::size_t ring_bytes = std::size_t{256} << 10;  // ours, a power of two; a peer tells its own
  // How long a new connection may take to greet and to say its first word, and how long a peer may
  // leave a full ring unread.
  Duration patience = std::chrono::seconds(2);
  // For a device backend that wants to pin the memory: called with whole pages, after mapping and
  // before unmapping. The first are ours, the others can only be read.
  std::function<void(
      std::byte*ours, const std::byte*others, std::size_t ours_bytes, std::size_t others_bytes)>
      on_mapped, on_unmapping;
  std::shared_ptr<const Clock> clock = nullptr;  // patience is its time; null: the steady one
};

// Since start; any thread may read them.
struct MemoryLinkCounters {
  std::atomic<std::uint64_t> opened{0};
  std::atomic<std::uint64_t> ended{0};   // the peer left or died
  std::atomic<std::uint64_t> broken{0};  // the peer did what no peer may: torn ring, silence, flood
  std::atomic<std::uint64_t> refused{0};  // connections that never became links
  std::atomic<std::uint64_t> sent{0};
  std::atomic<std::uint64_t> received{0};
  std::atomic<std::uint64_t> busy{0};  // not sent: no room, or too large for a ring
};

class MemoryLinks {
 public:
  explicit MemoryLinks(MemoryLinkOptions options = {});
  ~MemoryLinks();
  MemoryLinks(const MemoryLinks&) = delete;
  MemoryLinks& operator=(const MemoryLinks&) = delete;

  // shm:///PATH, where PATH becomes a socket file for this user alone.
  static bool is_endpoint(std::string_view endpoint) { return endpoint.starts_with(kScheme); }
  // Ids are apart from those of every other transport.
  static bool is_socket(SocketId id) { return (id & kIdBit) != 0; }
  // Why this system has no such links; empty if it has. Tries one out.
  static std::string why_unavailable();

  SocketId bind(const std::string& endpoint);     // throws FatalError: another serves it
  SocketId connect(const std::string& endpoint);  // throws FatalError: nobody there, or no memory
  void close(SocketId socket);
  void hang_up(const Peer& peer);  // one connection of a bound socket
  // kSent: in the ring. kBusy: no room, too large, or not greeted yet. kUnknown: that link is over.
  [[nodiscard]] SendResult send(const Peer& to, const Frames& frames);
  // A message, or the end of a link (kClosed, the reason is its only frame). Never waits.
  std::optional<Delivery> receive();

  // Before sleeping: peers are told to ring. False: there is something to receive, don't sleep.
  [[nodiscard]] bool fall_asleep();
  void add_to(std::vector<pollfd>& waiting) const;
  void wake_up();  // after sleeping
  bool is_idle() const { return doors_.empty() && links_.empty() && closed_.empty(); }

  std::shared_ptr<const MemoryLinkCounters> counters() const { return counters_; }

  static constexpr std::string_view kScheme = "shm://";
  // Unread records towards whoever was bound: questions of the past are worth nothing. The answers
  // of several sequences come one by one.
  static constexpr std::size_t kMostQuestions = 16;
  static constexpr std::size_t kMostAnswers = 256;
  static constexpr std::size_t kMaxLinks = 256;

 private:
  struct Door;
  struct Link;
  enum class End : std::uint8_t { kLeft, kBroken };

  static constexpr SocketId kIdBit = 0x8000'0000;

  TimePoint clock_now() const {
    return options_.clock ? options_.clock->now() : std::chrono::steady_clock::now();
  }
  Link* find(const Peer& peer);
  void look(TimePoint now);  // at every socket: who comes, rings or leaves
  void accept_from(const Door& door, TimePoint now);
  bool make_room();
  void on_readable(Link& link);
  void greet_back(Link& link);
  void open(Link& link, int fd, std::uint32_t ring_bytes);
  void listen_to_bell(Link& link);
  void check_patience(Link& link, TimePoint now) const;
  std::optional<Delivery> read_rings();
  static void doom(Link& link, End end, std::string why);
  void bury();  // links that are doomed
  void unmap(Link& link);

  MemoryLinkOptions options_;
  std::vector<std::unique_ptr<Door>> doors_;
  std::vector<std::unique_ptr<Link>> links_;
  std::deque<Delivery> closed_;
  std::size_t turn_ = 0;
  SocketId last_id_ = kIdBit;
  std::uint64_t last_routing_ = 0;
  std::uint32_t sleeps_ = 0;  // odd while asleep
  bool look_soon_ = false;
  TimePoint look_at_{};
  std::shared_ptr<MemoryLinkCounters> counters_ = std::make_shared<MemoryLinkCounters>();
};

}  // namespace foretoken
