// An address as in a URL.
#pragma once

#include <string>

namespace foretoken {

// "127.0.0.1:8000", "[::1]:8000".
inline std::string host_and_port(const std::string& host, const std::string& port) {
  const bool is_v6 = host.find(':') != std::string::npos;
  return (is_v6 ? "[" + host + "]" : host) + ":" + port;
}

}  // namespace foretoken
