// Requests to the router as coroutines see them: a call is one or several requests, whose answers
// are awaited one by one. A call of more requests than the router has room for sends them as those
// before them end. HTTP thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "services/edge/asio.h"
#include "services/edge/router_thread.h"

namespace foretoken::edge {

// What is unfinished of it is cancelled when its last holder lets it go.
class Call {
 public:
  // What waits here unread beyond this ends the call: its reader takes too little.
  static constexpr std::size_t kMaxWaitingBytes = std::size_t{1} << 20;

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
  enum class State : std::uint8_t { kUnsent, kAtWork, kOver };
  Call(boost::asio::io_context& context,
       class Calls& calls,
       std::vector<wire::ClientRequest> requests)
      : calls_(calls),
        requests_(std::move(requests)),
        ids_(requests_.size()),
        states_(requests_.size()),
        unsent_(requests_.size()),
        waiting_(requests_.size()),
        signal_(context) {
    std::iota(unsent_.begin(), unsent_.end(), std::size_t{0});
  }
  bool end(std::size_t request, bool had_no_room);
  void take(std::size_t request, wire::ClientAnswer answer);
  void give_up();
  bool joins_waiting(std::size_t request, wire::ClientAnswer& answer);

  class Calls& calls_;
  std::vector<wire::ClientRequest> requests_;  // empty where the last answer is here
  std::vector<RequestId> ids_;
  std::vector<State> states_;
  std::deque<std::size_t> unsent_;
  std::size_t n_at_work_ = 0;
  std::vector<wire::ClientPiece*> waiting_;  // in arrivals_, where the last of a request is a piece
  boost::asio::steady_timer signal_;
  std::deque<Arrival> arrivals_;
  std::size_t waiting_bytes_ = 0;
  bool interrupted_ = false;
};

class Calls {
 public:
  // `most_of_a_call`: requests of one call that are at the router at a time.
  Calls(boost::asio::io_context& context, const BusSection& bus, std::size_t most_of_a_call);

  // Sends requests, each with a fresh id. One that finds no room is sent again while others of its
  // call are at work.
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
  void send(Call& call, std::size_t most);

  boost::asio::io_context& context_;
  const std::size_t most_of_a_call_;
  std::unordered_map<std::string, Place> open_;  // by request id: those without a last answer
  RouterThread router_;                          // last: its thread uses the others
};

}  // namespace foretoken::edge
