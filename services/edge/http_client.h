// One POST to another server, for what the edge reports: no keys of clients, no answers of models.
// HTTP alone; TLS is a proxy's or a collector's on this machine.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "services/edge/asio.h"
#include "services/edge/http_types.h"

namespace foretoken::edge {

struct HttpUrl {
  std::string host;
  std::string port = "80";
  std::string target = "/";  // path and query
};

// http://HOST[:PORT][/PATH]; the error says what it is instead.
Result<HttpUrl> read_url(std::string_view text);

struct HttpAnswer {
  unsigned status = 0;
  std::string body;
  std::optional<Duration> retry_after;
};

// An Error: no connection, or no answer within the time limit, the look-up of the name included.
boost::asio::awaitable<Result<HttpAnswer>> http_post(boost::asio::io_context& context,
                                                     const HttpUrl& url,
                                                     const HttpHeaders& headers,
                                                     std::string body,
                                                     Duration limit);

}  // namespace foretoken::edge
