// One generation over HTTP, whatever the protocol: starts its requests at the router, passes what
// comes to the protocol's encoder, and ends both when either side ends.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "services/edge/asio.h"
#include "services/edge/calls.h"
#include "services/edge/http_error.h"
#include "services/edge/http_server.h"

namespace foretoken::edge {

struct Generation {
  std::vector<wire::ClientRequest> choices;  // answers that are wanted, one request each
  bool stream = false;
  std::size_t n_prompts = 1;  // of one body; each has as many of the choices, one behind the other
  std::string constraint_field;  // of the body: what constrains the answers; "" = nothing
};

// How one protocol writes the answer to one generation. Its texts are bodies and event streams.
class Encoder {
 public:
  virtual ~Encoder() = default;
  // A reply instead of any answer: its body, and the status that clients of the protocol know.
  virtual std::string error_body(const HttpError& error) const = 0;
  virtual unsigned error_status(const HttpError& error) const { return error.status; }

  // Not streamed: all answers, in order.
  virtual std::string whole(const std::vector<wire::ClientReply>& replies) = 0;

  // Streamed: events as they are sent, "" for none. The reply carries what no piece has.
  virtual std::string on_piece(std::size_t choice, const wire::ClientPiece& piece) = 0;
  virtual std::string on_reply(std::size_t choice, const wire::ClientReply& reply) = 0;
  virtual std::string end() = 0;  // after the last reply
  // In place of the rest; the connection is closed behind it.
  virtual std::string error_event(const HttpError& error) = 0;
  // Sent when nothing was for a while: an event of the protocol that adds nothing. A comment would
  // not do: some clients take the blank line behind it for an event, and others wait for events
  // alone.
  virtual std::string ping() = 0;
};

struct GenerationRules {
  Duration ping_every = std::chrono::seconds(15);
  std::size_t max_held_bytes = 0;     // edge.max_bodies_mib, which an error says
  std::string constraint_field = {};  // errors about the constraint are about this field
  // Sees each answer before the encoder does.
  std::function<void(std::size_t choice, const wire::ClientAnswer& answer)> watch = {};
};

// Until the answer is whole, the client is gone, or an error ended it. `headers` go with every
// reply.
boost::asio::awaitable<void> generate(HttpExchange& exchange,
                                      Calls& calls,
                                      Generation generation,
                                      Encoder& encoder,
                                      GenerationRules rules,
                                      HttpHeaders headers);

}  // namespace foretoken::edge
