// The room that the answers of one exchange have beside all that the edge holds, and the error of
// one for which there is none.
#pragma once

#include <cstddef>
#include <optional>

#include "services/edge/http_error.h"
#include "services/edge/http_server.h"

namespace foretoken::edge {

class AnswerRoom {
 public:
  // Outlived by the exchange. `max_bytes`: of edge.max_bodies_mib, which an error says.
  AnswerRoom(HttpExchange& exchange, std::size_t max_bytes)
      : exchange_(exchange), max_bytes_(max_bytes) {}

  // So much is kept of the answers from now on. False: it has no room, and refusal() says why.
  bool hold(std::size_t n_bytes);
  const std::optional<HttpError>& refusal() const { return refusal_; }

 private:
  HttpExchange& exchange_;
  const std::size_t max_bytes_;
  std::optional<HttpError> refusal_;
};

}  // namespace foretoken::edge
