// A connection to the router's client door: requests out, answers back, matched by request id, any
// number at a time. When the connection is lost, what has no last answer yet is asked again under
// the same id as soon as a router is back, and what was passed on already is not passed on again.
// One thread calls everything but wake(). It waits for answers (the command), or posts requests
// and takes what is there (the edge).
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/client/resumed_answer.h"
#include "common/config/sections.h"
#include "common/transport/zmq_transport.h"
#include "common/wire/client_codec.h"

namespace foretoken {

// A fresh random 128-bit id.
RequestId new_request_id();

// How to speak with the client door: over TCP with the configured key, if there is one; on ipc file
// permissions decide.
ZmqOptions client_options(const BusSection& bus);

// After a lost connection.
struct Patience {
  Duration longest =
      std::chrono::seconds(30);  // for a router to be back; then the requests end as kUnavailable
  // Silence after which `say` is called once, with the reason for the wait.
  Duration silent = std::chrono::seconds(1);
  std::function<void(const std::string&)> say = {};
};
// One that takes a router with it would take the next one too.
inline constexpr int kMostTimesAskedAgain = 3;

class Client {
 public:
  // Connects to bus.client in the background; throws FatalError for what cannot be connected to, or
  // not without keys.
  explicit Client(const BusSection& bus, Patience patience = {});
  ~Client();

  const std::string& endpoint() const { return endpoint_; }

  // Hands a request to the socket; gives it an id if it has none. kUnavailable: no router took it
  // by `deadline`, or within a few seconds.
  Result<RequestId> send(wire::ClientRequest request, TimePoint deadline);
  // The next answer of any request; nothing by the deadline. An answer that cannot be read is an
  // Error.
  std::optional<Result<wire::ClientAnswer>> receive(TimePoint deadline);

  // As send(), without waiting for a connection: the request leaves as soon as there is one. If
  // there is none within Patience::longest, it ends as kUnavailable. An Error: it is too large.
  Result<RequestId> post(wire::ClientRequest request);
  // Ends a request at the router, which answers it with what there is; one that has not left yet
  // ends here, as kCancelled.
  void cancel(RequestId id);
  // The next answer that is there; never waits.
  std::optional<Result<wire::ClientAnswer>> next();
  // Waits once: for something to arrive, for a change of the connection, for wake() or the
  // deadline.
  void wait(TimePoint deadline);
  // From any thread: a waiting wait() returns, or the next one does.
  void wake() { transport_->wake(); }
  // This one is not waited for any more: it is not asked again.
  void forget(RequestId id) { asked_.erase(wire::hex_of(id)); }
  // Requests sent again after a lost connection, each time it happened.
  std::uint64_t n_asked_again() const { return n_asked_again_; }

  // One exchange: sends, passes pieces on, returns the last answer (or the client error in it as
  // Error). Answers to other requests are dropped.
  using OnPiece = std::function<void(const wire::ClientPiece&)>;
  Result<wire::ClientAnswer> ask(wire::ClientRequest request,
                                 TimePoint deadline,
                                 const OnPiece& on_piece = {});
  Result<wire::ClientReply> generate(wire::ClientRequest request,
                                     TimePoint deadline,
                                     const OnPiece& on_piece = {});
  // Fails at once when the address refuses connections, and not only when the
  // deadline has passed.
  Result<wire::StatusReply> status(TimePoint deadline);
  // Turns the error of a status question into one for the request to be sent: no answer, or
  // connection refused.
  Error unreachable(const Error& error) const;

 private:
  struct AskedRequest {
    Bytes bytes;
    ResumedAnswer resumed;
    bool again = false;      // to be sent: its connection is lost, or there was none yet
    bool cancelled = false;  // and so not to be asked again
    int n_again = 0;
  };

  // Why no request will ever be taken, once the door has refused us.
  std::optional<Error> refused() const;
  // That no router answers, and what is known of the cause.
  std::string no_answer_message() const;
  bool is_up() const { return transport_->connection(socket_).up; }
  void take(const Delivery& delivery);
  void look_after_connection();
  void ask_again();
  void end(const std::string& id, ErrorCode code, const std::string& why);
  void end_all(ErrorCode code, const std::string& why, bool AskedRequest::*which);

  std::string endpoint_;
  std::string key_file_;  // empty: without a key
  Patience patience_;
  std::unique_ptr<ZmqTransport> transport_;
  SocketId socket_ = 0;
  std::map<std::string, AskedRequest> asked_;       // by id: those without a last answer
  std::deque<Result<wire::ClientAnswer>> answers_;  // read, not yet handed out
  std::uint64_t losses_ = 0;
  std::optional<TimePoint> lost_since_;
  bool said_ = false;
  std::uint64_t n_asked_again_ = 0;
};

// What an error answer says, as an Error.
Error error_from(const wire::ClientError& error);

// The id an answer belongs to, as hex.
const std::string& answer_id(const wire::ClientAnswer& answer);

}  // namespace foretoken
