// Answers that the connections of clients did not take at once, in order, until they do: bounded in
// bytes for each client and for all together, and in the time in which a client may take none.
// Beyond a bound the sender learns of each message that was lost, so that it can end what the
// message belonged to. It knows no socket and reads no clock. One thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "common/base/clock.h"
#include "common/transport/transport.h"

namespace foretoken {

struct WaitingLimits {
  std::size_t bytes_of_one = kMaxWaitingBytes;
  std::size_t bytes_of_all = std::size_t{64} << 20;
  Duration patience = kWaitingPatience;
};

class WaitingAnswers {
 public:
  using Send = std::function<SendResult(const Peer&, const Frames&)>;

  explicit WaitingAnswers(const WaitingLimits& limits = {}) : limits_(limits) {}

  // What is sent to this client now must wait behind others.
  bool waits(const Peer& peer) const { return clients_.contains(client_of(peer)); }
  // False: there is no room, this message is lost.
  [[nodiscard]] bool keep(const Peer& peer, const Frames& frames, TimePoint now);
  // Tries what waits for the clients that are due: libzmq says of no single connection when it has
  // room, so a full one is tried again after a pause that doubles from kFirstPause to
  // kLongestPause, and one that took something after kFirstPause. A client that took none for too
  // long loses all of it: see lost().
  void send_again(const Send& send, TimePoint now);
  static constexpr Duration kFirstPause = std::chrono::milliseconds(1);
  static constexpr Duration kLongestPause = std::chrono::milliseconds(32);
  // When send_again() has something to do.
  TimePoint due() const { return due_.empty() ? TimePoint::max() : due_.begin()->first; }
  // The next of those that were kept and then lost (kDropped), or that the client is gone.
  std::optional<Delivery> lost();
  bool has_lost() const { return !lost_.empty(); }
  // A socket was closed.
  void forget(SocketId socket);

  bool empty() const { return clients_.empty() && lost_.empty(); }
  std::size_t n_bytes() const { return n_bytes_; }

 private:
  using Client = std::pair<SocketId, std::string>;  // a connection
  struct Waiting {
    std::deque<std::pair<Peer, Frames>> messages;
    std::size_t n_bytes = 0;
    TimePoint took_last{};
    TimePoint again{};
    Duration pause = kFirstPause;
  };
  static Client client_of(const Peer& peer) { return {peer.socket, peer.routing}; }
  void lose(std::map<Client, Waiting>::iterator client);
  bool send_some(Waiting& waiting, const Send& send, TimePoint now);
  void erase(std::map<Client, Waiting>::iterator client);

  WaitingLimits limits_;
  std::map<Client, Waiting> clients_;
  std::set<std::pair<TimePoint, Client>> due_;  // each of them, by `again`
  std::deque<Delivery> lost_;
  std::size_t n_bytes_ = 0;
};

}  // namespace foretoken
