// Requests to the router as coroutines see them: a call is one or several requests, whose answers
// are awaited one by one. HTTP thread only.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "services/edge/asio.h"
#include "services/edge/router_thread.h"

namespace foretoken::edge {

// What is unfinished of it is cancelled when its last holder lets it go.
class Call {
 public:
  // What waits here unread beyond this ends the call: its reader takes too little.
  static constexpr std::size_t kMaxWaitingBytes = std::size_t{256} << 10;

  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  struct Arrival {
    std::size_t request = 0;  // which of them
    wire::ClientAnswer answer;
  };
  // The next answer of any; nothing by the deadline, or after interrupt(). The last answer of a
  // request is no piece. Pieces of a request that wait are one: a reader that is behind writes
  // fewer and larger events, and so catches up.
  boost::asio::awaitable<std::optional<Arrival>> next(TimePoint deadline);
  // A waiting next() returns nothing, and from now on each that finds nothing.
  void interrupt();
  const std::vector<RequestId>& ids() const { return ids_; }

 private:
  friend class Calls;
  Call(boost::asio::io_context& context, class Calls& calls, std::size_t n_requests)
      : calls_(calls),
        ids_(n_requests),
        over_(n_requests),
        waiting_(n_requests),
        signal_(context) {}
  void take(std::size_t request, wire::ClientAnswer answer);
  void give_up();
  bool joins_waiting(std::size_t request, wire::ClientAnswer& answer);

  class Calls& calls_;
  std::vector<RequestId> ids_;
  std::vector<bool> over_;                   // its last answer is here
  std::vector<wire::ClientPiece*> waiting_;  // in arrivals_, where the last of a request is a piece
  boost::asio::steady_timer signal_;
  std::deque<Arrival> arrivals_;
  std::size_t waiting_bytes_ = 0;
  bool interrupted_ = false;
};

class Calls {
 public:
  Calls(boost::asio::io_context& context, const BusSection& bus);

  // Sends requests, each with a fresh id.
  std::shared_ptr<Call> start(std::vector<wire::ClientRequest> requests);
  std::shared_ptr<Call> start(wire::ClientRequest request);
  std::size_t n_open() const { return open_.size(); }
  // Before the context ends: nothing is posted to it afterwards.
  void stop() { router_.stop(); }

 private:
  friend class Call;
  struct Place {
    Call* call = nullptr;
    std::size_t request = 0;
  };
  void take(std::vector<wire::ClientAnswer> answers);

  boost::asio::io_context& context_;
  std::unordered_map<std::string, Place> open_;  // by request id: those without a last answer
  RouterThread router_;                          // last: its thread uses the others
};

}  // namespace foretoken::edge
