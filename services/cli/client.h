// A connection to the router's client door: requests out, answers back, matched by request id, any number at a time.
// One thread. Knows the wire, not the verbs.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/config/sections.h"
#include "common/transport/zmq_transport.h"
#include "common/wire/client_codec.h"

namespace foretoken::cli {

// A fresh random 128-bit id.
RequestId new_request_id();

// How to speak with the client door: on this host as it is, beyond it with the configured key.
ZmqOptions client_options(const BusSection& bus);

class Client {
 public:
  // Connects to bus.client in the background; throws FatalError for what cannot be connected to, or not without keys.
  explicit Client(const BusSection& bus);
  ~Client();

  const std::string& endpoint() const { return endpoint_; }

  // Hands a request to the socket; gives it an id if it has none. kUnavailable: no router took it by `deadline`,
  // or within a few seconds.
  Result<RequestId> send(wire::ClientRequest request, TimePoint deadline);
  // The next answer of any request; nothing by the deadline. An answer that cannot be read is an Error.
  std::optional<Result<wire::ClientAnswer>> receive(TimePoint deadline);

  // One exchange: sends, passes pieces on, returns the last answer (or the client error in it as Error).
  // Answers to other requests are dropped.
  using OnPiece = std::function<void(const wire::ClientPiece&)>;
  Result<wire::ClientAnswer> ask(wire::ClientRequest request, TimePoint deadline, const OnPiece& on_piece = {});
  Result<wire::ClientReply> generate(wire::ClientRequest request, TimePoint deadline, const OnPiece& on_piece = {});
  // Says at once that nobody is there when the address refuses connections, and not only when the deadline has passed.
  Result<wire::StatusReply> status(TimePoint deadline);

 private:
  std::string endpoint_;
  std::unique_ptr<Transport> transport_;
  SocketId socket_ = 0;
};

// What an error answer says, as an Error.
Error error_from(const wire::ClientError& error);

// The id an answer belongs to, as hex.
const std::string& answer_id(const wire::ClientAnswer& answer);

}  // namespace foretoken::cli
