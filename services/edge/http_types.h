// HTTP as the handlers of routes see it: a request that was read whole, and a reply.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace foretoken::edge {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;  // "POST"
  std::string path;    // decoded, without the query: "/v1/models/a/b"
  std::string query;   // as it came: "beta=true"
  HttpHeaders headers;
  std::string body;
  std::string id;  // for logs and support: the client's x-request-id, or the edge's own

  // The value of the first header of this name, in any case; "" if there is none.
  std::string_view header(std::string_view name) const;
};

struct HttpReply {
  unsigned status = 200;
  std::string body;
  std::string content_type = "application/json";
  HttpHeaders headers = {};
};

// Words for a header: separated by commas, what is not printable ASCII as "?", cut after some. What
// a client wrote never ends a line of a header.
std::string header_list(const std::vector<std::string>& words);

// The client's own id, if a log can show it.
std::string request_id_of(const HttpRequest& request);

// Percent-decoding of a path; nothing if it is malformed or has a zero byte.
std::optional<std::string> decoded_path(std::string_view path);

}  // namespace foretoken::edge
