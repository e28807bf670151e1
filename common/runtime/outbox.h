// Messages that a full socket refused: the one place where they wait, in order for each peer, until
// the socket takes them. Bounded in bytes for each peer and for all of a door, and by the patience
// of each message. Each message is taken by the socket, or reported as lost with its ticket; of a
// series the messages behind a lost one are lost with it, in one report, so that no peer gets a
// series with a hole. It uses no message, and reads no clock. One thread: the one of the sockets.
// Patience is with the peer: time in which this thread did not run, and tried nothing, is not taken
// from it.
//
// A message without patience waits for none and none waits for it: it may overtake.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/running_clock.h"
#include "common/runtime/posting.h"
#include "common/transport/transport.h"

namespace foretoken {

struct WaitingLimits {
  std::size_t of_one = 0;         // bytes that wait for one peer; see limit_of for Room::kReserved
  std::size_t of_all = 0;         // for all peers of such doors
  std::size_t of_one_taking = 0;  // for one that takes some all the time; less than of_one: no more
};

// A client that does not read: hundreds of streams share a connection, and a round of them is one
// burst: room for a second or so of that, some 16,384 pieces without log probabilities. One that
// reads may be behind by four times as much: when this process did not run for some seconds, the
// pieces of that time come at once.
inline constexpr WaitingLimits kClientLimits{std::size_t{4} << 20, std::size_t{64} << 20,
                                             std::size_t{16} << 20};
inline constexpr WaitingLimits kWorkerLimits{std::size_t{32} << 20, std::size_t{256} << 20};
inline constexpr WaitingLimits kDraftLimits{std::size_t{1} << 20, std::size_t{16} << 20};

class Outbox {
 public:
  using Send = std::function<SendResult(const Peer&, const Frames&)>;
  using Limits = std::array<WaitingLimits, kDoors>;  // by door

  explicit Outbox(Send send, const Limits& limits = {kWorkerLimits, kClientLimits, kDraftLimits})
      : send_(std::move(send)), limits_(limits) {}

  // A socket was bound or connected. One that was never named counts as internal.
  void add(SocketId socket, Door door) { doors_[socket] = door; }
  // It was closed, or its peer is not sent to any more: what waits is forgotten, without a report.
  void remove(SocketId socket);
  void forget(const Peer& peer);

  void send(const Peer& to, Frames frames, const Posting& posting, TimePoint now);
  // It was lost before it came here.
  void lose(const Peer& to, const Posting& posting);

  // Tries what waits for the peers that are due. No socket says when a single connection has room,
  // so a full one is tried again after a pause that doubles from kFirstPause to kLongestPause, and
  // one that took something after kFirstPause.
  void send_again(TimePoint now);
  static constexpr Duration kFirstPause = std::chrono::milliseconds(1);
  static constexpr Duration kLongestPause = std::chrono::milliseconds(32);
  static constexpr Duration kLookPause = std::chrono::milliseconds(500);
  // When send_again() has something to do.
  TimePoint due() const { return due_.empty() ? TimePoint::max() : due_.begin()->first; }

  // The next report: kDropped, or kUndelivered where the peer is gone, and with it all that waited.
  std::optional<Delivery> lost();
  bool has_lost() const { return !lost_.empty(); }

  std::size_t n_waiting(SocketId socket) const;
  bool empty() const { return queues_.empty(); }  // nothing waits
  std::size_t n_bytes(Door door) const { return n_bytes_[static_cast<std::size_t>(door)]; }

 private:
  using Connection = std::pair<SocketId, std::string>;
  using Series = std::pair<Connection, Ticket>;
  struct Message {
    Peer to;
    Frames frames;
    Posting posting;
    TimePoint since{};  // by patience_clock_
  };
  struct Queue {
    std::deque<Message> messages;
    std::size_t n_bytes = 0;
    TimePoint took_last{};  // or when it began; by patience_clock_
    bool took_some = false;
    TimePoint again{};
    TimePoint first_expiry = TimePoint::max();  // or earlier; by patience_clock_
    TimePoint next_look{};                      // for messages whose patience is over
    Duration pause = kFirstPause;
  };
  using Queues = std::map<Connection, Queue>;
  // The peer for which most waits comes first; of equal ones that with the lower connection.
  struct MoreWaits {
    bool operator()(Queues::const_iterator a, Queues::const_iterator b) const {
      return a->second.n_bytes != b->second.n_bytes ? a->second.n_bytes > b->second.n_bytes
                                                    : a->first < b->first;
    }
  };

  static Connection connection_of(const Peer& peer) { return {peer.socket, peer.routing}; }
  static TimePoint expiry_of(const Queue& queue, const Message& message);
  static std::size_t limit_of(const Queue& queue,
                              const Message& message,
                              const WaitingLimits& limits);
  Door door_of(SocketId socket) const;
  // The one way to change them: they are an order of the queues, too.
  void set_bytes(Queues::iterator queue, std::size_t n_bytes);
  bool keep(Message message, TimePoint now);
  // True if nothing waits there any more. `counted`: of patience_clock_.
  bool send_some(Queues::iterator queue, TimePoint counted);
  void lose_if(Queues::iterator queue, const std::function<bool(const Message&)>& is_lost);
  void make_room(Door door);
  void peer_is_gone(const Peer& peer, Ticket ticket);
  void report(DeliveryKind kind, const Peer& peer, Ticket ticket);
  void remember_hole(const Series& series);
  void erase(Queues::iterator queue);
  void forget_holes(const Connection& connection);

  static constexpr std::size_t kMaxHoles = 4096;
  // A peer that took something within this time is taking: on a busy machine a process has no core
  // for hundreds of milliseconds.
  static constexpr Duration kTaking = std::chrono::seconds(1);

  Send send_;
  Limits limits_;
  RunningClock patience_clock_{kLookPause};  // what waits is looked at more often than that
  std::map<SocketId, Door> doors_;
  Queues queues_;
  std::set<std::pair<TimePoint, Connection>> due_;  // each of them, by `again`
  std::array<std::set<Queues::iterator, MoreWaits>, kDoors> by_bytes_;
  std::array<std::size_t, kDoors> n_bytes_{};
  // A message was lost, and no first one came since: when, in the order of holes.
  std::map<Series, std::uint64_t> holes_;
  std::deque<std::pair<Series, std::uint64_t>> holes_by_age_;
  std::uint64_t n_holes_ = 0;  // since start
  std::deque<Delivery> lost_;
};

}  // namespace foretoken
