// One link through shared memory, as one side sees it: connected, then open once both have greeted,
// then over. Its two regions carry the rings, each written by its owner alone; its Unix socket is
// the bell that wakes a sleeping peer, and the end of that is the peer's end. What the peer may do
// wrong (greet in another way, tear a ring, signal without a message, stay silent, not read) ends
// the link with a sentence, and nothing else. It uses no other link and never waits; options and
// counters are borrowed. One thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/base/clock.h"
#include "common/base/fd.h"
#include "common/base/shared_region.h"
#include "common/transport/shared_ring.h"
#include "common/transport/transport.h"

namespace foretoken {

struct MemoryLinkOptions {
  std::size_t ring_bytes = std::size_t{256} << 10;  // ours, a power of two; a peer tells its own
  // How long a new connection may take to greet and to say its first word, and how long a peer may
  // leave a full ring unread.
  Duration patience = std::chrono::seconds(2);
  std::shared_ptr<const Clock> clock = nullptr;  // patience is its time; null: the steady one

  TimePoint now() const { return clock ? clock->now() : std::chrono::steady_clock::now(); }
};

// Since start, of all links; any thread may read them.
struct MemoryLinkCounters {
  std::atomic<std::uint64_t> opened{0};
  std::atomic<std::uint64_t> ended{0};   // the peer left or died
  std::atomic<std::uint64_t> broken{0};  // the peer did what no peer may: torn ring, silence, flood
  std::atomic<std::uint64_t> refused{0};  // connections that never became links
  std::atomic<std::uint64_t> sent{0};
  std::atomic<std::uint64_t> received{0};
  std::atomic<std::uint64_t> busy{0};  // not sent: no room, or too large for a ring
};

class MemoryLink {
 public:
  enum class Origin : std::uint8_t { kDialled, kAccepted };
  enum class End : std::uint8_t { kLeft, kBroken };

  MemoryLink(const MemoryLinkOptions& options,
             MemoryLinkCounters& counters,
             Peer peer,
             Origin origin,
             Fd socket);
  MemoryLink(const MemoryLink&) = delete;
  MemoryLink& operator=(const MemoryLink&) = delete;

  // The side that connects greets first, `endpoint`. Throws FatalError: it left at once, or no
  // memory.
  void greet_first(const std::string& endpoint);

  const Peer& peer() const { return peer_; }
  int fd() const { return socket_.get(); }
  TimePoint since() const { return since_; }  // it is connected, or open
  bool is_open() const { return is_open_; }
  // Nothing comes or goes any more.
  const std::optional<End>& end() const { return end_; }
  const std::string& why() const { return why_; }
  // The service behind us has its first message.
  bool is_known() const { return is_dialled_ || has_spoken_; }
  // A connection to our door that has sent nothing. One that is open may only be unread: we had
  // no time for its ring.
  bool has_not_spoken() const { return !is_known() && !(is_open_ && reader_->has_something()); }

  void on_readable();  // its socket has a greeting, a ring of the bell, or its end
  void check_patience(TimePoint now);
  void mark_failed(End end, std::string why);
  // kUnknown: it is over now.
  [[nodiscard]] SendResult send(const Frames& frames);
  std::optional<Frames> receive();
  // Tells the peer to ring, `sleeps` being odd. False: there is something to receive.
  [[nodiscard]] bool fall_asleep(std::uint32_t sleeps);
  void wake_up(std::uint32_t sleeps);

  // Unread records towards the bound side: questions of the past are worth nothing. The answers
  // of several sequences come one by one.
  static constexpr std::size_t kMostQuestions = 16;
  static constexpr std::size_t kMostAnswers = 256;

 private:
  Result<void> make_own();
  bool hand_over_own();
  void open(Fd region, std::uint32_t ring_bytes);
  void greet_back();
  void listen_to_bell();
  bool ring_bell();
  void was_full(TimePoint now);
  RingHead& own_head() const;
  const RingHead& other_head() const;

  const MemoryLinkOptions& options_;
  MemoryLinkCounters& counters_;
  Peer peer_;
  bool is_dialled_;
  Fd socket_;
  TimePoint since_;
  bool is_open_ = false;
  bool has_spoken_ = false;
  std::optional<TimePoint> full_since_;  // the ring was full, and nothing of it has been read since
  std::uint64_t full_read_to_ = 0;       // what had been read then
  std::size_t idle_bells_ = 0;
  SharedRegion own_;
  SharedRegion other_;
  std::optional<RingWriter> writer_;
  std::optional<RingReader> reader_;
  std::optional<End> end_;
  std::string why_;
};

}  // namespace foretoken
