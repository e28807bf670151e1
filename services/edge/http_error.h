// An Error as HTTP says it: status, and what the client may do. The body is each protocol's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "common/messages/client.h"
#include "services/edge/http_types.h"

namespace foretoken::edge {

struct HttpError {
  unsigned status = 500;
  std::string type;     // of OpenAI's closed list: invalid_request_error ...
  std::string code;     // "" = null
  std::string message;  // what, which one and the limit
  std::string param;    // "" = null
  std::uint32_t retry_after_ms = 0;
};

HttpError http_error(const Error& error, std::uint32_t retry_after_ms = 0);
HttpError http_error(const wire::ClientError& error);
// Of a request that no route took, or that is no HTTP.
HttpError http_error(unsigned status, const std::string& message);

// An error about a key of the request to the router, as one about the field that gave it.
HttpError about_field(HttpError error, std::string_view key, std::string_view field);

// Of one that finds no room beside those that are held (edge.max_bodies_mib).
HttpError overloaded_error();

// Retry-After, retry-after-ms and x-should-retry, which client libraries obey: without them each
// request that fails is sent three times.
HttpHeaders retry_headers(const HttpError& error);

}  // namespace foretoken::edge
