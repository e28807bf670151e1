// Requests to the router as coroutines see them: a call is one or several requests, whose answers
// are awaited one by one. A call of more requests than the router has room for sends them as those
// before them end, all within the time of one request. HTTP thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/config/models.h"
#include "services/edge/asio.h"
#include "services/edge/router_thread.h"

namespace foretoken::edge {

struct CallLimits {
  // Requests that the router holds: of declared models, and of all.
  std::vector<RequestLimit> of_models;
  std::size_t of_all = 1;
  std::string default_model = {};  // of requests that name none
  Duration timeout{};              // of a request that says none: limits.request_timeout_s

  // Requests of one call for this model that are at the router: half of what it holds, so that a
  // call for many answers leaves room for others.
  std::size_t most_at_a_time(const std::string& model) const;
};

// What is unfinished of it is cancelled when its last holder lets it go.
class Call : public std::enable_shared_from_this<Call> {
 public:
  // What waits here unread beyond this ends the call: its reader takes too little.
  static constexpr std::size_t kMaxWaitingBytes = std::size_t{1} << 20;

  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  struct Arrival {
    std::size_t request = 0;  // which of them
    wire::ClientAnswer answer;
    std::size_t held_bytes = 0;  // that count until let_go()
  };
  // Asked for room for so many bytes in place of those before: last answers, and what pieces say of
  // the prompt, from when they come until they are let go. False ends the call: next() has an
  // error.
  using Hold = std::function<bool(std::size_t n_bytes)>;
  void hold_with(Hold hold) { hold_ = std::move(hold); }
  void let_go(const Arrival& arrival);
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
       std::vector<wire::ClientRequest> requests,
       std::size_t most_at_a_time)
      : calls_(calls),
        requests_(std::move(requests)),
        most_at_a_time_(most_at_a_time),
        ids_(requests_.size()),
        states_(requests_.size()),
        unsent_(requests_.size()),
        waiting_(requests_.size()),
        began_(steady_now()),
        retry_(context),
        signal_(context) {
    std::iota(unsent_.begin(), unsent_.end(), std::size_t{0});
  }
  bool end(std::size_t request, const wire::ClientAnswer& answer);
  void send(std::size_t most);
  void send_later();
  // What is left of the time of a request: the router counts it from where it is sent.
  std::optional<std::uint32_t> time_left_ms(const wire::ClientRequest& request) const;
  void take(std::size_t request, wire::ClientAnswer answer);
  void give_up();
  void end_with(std::size_t request, const Error& error);
  bool joins_waiting(std::size_t request, wire::ClientAnswer& answer);

  class Calls& calls_;
  std::vector<wire::ClientRequest> requests_;  // empty where the last answer is here
  const std::size_t most_at_a_time_;
  std::vector<RequestId> ids_;
  std::vector<State> states_;
  // Lists, since an empty deque takes 0.6 KB, for each of thousands of streams.
  std::list<std::size_t> unsent_;
  std::size_t n_at_work_ = 0;
  bool has_answers_ = false;  // one is whole: it is not lost because another finds no room
  std::vector<wire::ClientPiece*> waiting_;  // in arrivals_, where the last of a request is a piece
  const TimePoint began_;
  boost::asio::steady_timer retry_;
  boost::asio::steady_timer signal_;
  std::list<Arrival> arrivals_;
  std::size_t waiting_bytes_ = 0;  // of the answers in pieces
  std::size_t held_bytes_ = 0;
  Hold hold_;
  bool interrupted_ = false;
};

class Calls {
 public:
  Calls(boost::asio::io_context& context, const BusSection& bus, CallLimits limits);

  // Sends requests for one model, each with a fresh id; at least one. One that finds no room is
  // sent again where others of its call are at work or have ended.
  std::shared_ptr<Call> start(std::vector<wire::ClientRequest> requests);
  std::shared_ptr<Call> start(wire::ClientRequest request);
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
  const CallLimits limits_;
  std::unordered_map<std::string, Place> open_;  // by request id: those without a last answer
  RouterThread router_;                          // last: its thread uses the others
};

}  // namespace foretoken::edge
