// An address as in a URL.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>

namespace foretoken {

// "127.0.0.1:8000", "[::1]:8000".
inline std::string host_and_port(const std::string& host, const std::string& port) {
  const bool is_v6 = host.find(':') != std::string::npos;
  return (is_v6 ? "[" + host + "]" : host) + ":" + port;
}

struct HostAndPort {
  std::string host;  // without brackets
  std::uint16_t port = 0;
};

// The reverse. Nothing without a host and a port from 1 to 65535, or where a host with colons has
// no brackets.
inline std::optional<HostAndPort> host_and_port_in(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return std::nullopt;
  HostAndPort parts{.host = text.substr(0, colon)};
  const bool has_brackets = parts.host.front() == '[' && parts.host.back() == ']';
  if (has_brackets) parts.host = parts.host.substr(1, parts.host.size() - 2);
  if (parts.host.empty() || parts.host.find_first_of("[]") != std::string::npos ||
      (parts.host.find(':') != std::string::npos) != has_brackets)
    return std::nullopt;
  const char* end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data() + colon + 1, end, parts.port);
  if (error != std::errc{} || last != end || parts.port == 0) return std::nullopt;
  return parts;
}

}  // namespace foretoken
