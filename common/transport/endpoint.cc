#include "common/transport/endpoint.h"

#include <arpa/inet.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace foretoken {
namespace {

constexpr std::size_t kMaxIpcPath = sizeof(sockaddr_un::sun_path) - 1;

Error bad_endpoint(const std::string& text, const std::string& why) {
  return {ErrorCode::kConfig, "endpoint \"" + text + "\" " + why};
}

bool is_port(const std::string& port) {
  if (port == "*") return true;
  if (port.empty() || port.size() > 5 ||
      !std::all_of(port.begin(), port.end(), [](char c) { return c >= '0' && c <= '9'; }))
    return false;
  const int number = std::stoi(port);
  return number >= 1 && number <= 65535;
}

Result<Endpoint> parse_tcp(const std::string& text, const std::string& rest) {
  const auto colon = rest.rfind(':');
  if (colon == std::string::npos || !is_port(rest.substr(colon + 1)))
    return bad_endpoint(text, "has no port from 1 to 65535 (or *) after its last colon");
  std::string address = rest.substr(0, colon), port = rest.substr(colon + 1);
  if (port != "*") port = std::to_string(std::stoi(port));
  Endpoint endpoint{Scheme::kTcp, address, port, false};
  in_addr v4{};
  if (inet_pton(AF_INET, address.c_str(), &v4) == 1) {
    endpoint.loopback = (ntohl(v4.s_addr) >> 24) == 127;
    return endpoint;
  }
  if (address.size() > 2 && address.front() == '[' && address.back() == ']')
    address = address.substr(1, address.size() - 2);
  else if (address.find(':') != std::string::npos)
    return bad_endpoint(text, "must have its address of IPv6 in brackets, as tcp://[::1]:5555 has");
  in6_addr v6{};
  if (inet_pton(AF_INET6, address.c_str(), &v6) != 1)
    return bad_endpoint(
        text,
        "must give its address in numbers, such as 127.0.0.1: names and interfaces are not "
        "looked up");
  std::array<char, INET6_ADDRSTRLEN> spelled{};
  inet_ntop(AF_INET6, &v6, spelled.data(), spelled.size());
  endpoint.place = "[" + std::string(spelled.data()) + "]";
  endpoint.loopback = IN6_IS_ADDR_LOOPBACK(&v6);
  return endpoint;
}

}  // namespace

Result<Endpoint> parse_endpoint(const std::string& text) {
  const auto after = [&](std::string_view scheme) {
    return text.rfind(scheme, 0) == 0 ? text.substr(scheme.size()) : "";
  };
  if (const auto rest = after("tcp://"); !rest.empty()) return parse_tcp(text, rest);
  if (const auto rest = after("ipc://"); !rest.empty()) {
    if (rest.front() == '@')
      return bad_endpoint(text,
                          "is an abstract socket, which has no file permissions; give a path");
    if (rest.size() > kMaxIpcPath)
      return bad_endpoint(text, "has a path of " + std::to_string(rest.size()) +
                                    " characters; the limit is " + std::to_string(kMaxIpcPath) +
                                    " (choose a shorter bus.runtime_dir)");
    return Endpoint{Scheme::kIpc, rest, "", true};
  }
  if (const auto rest = after("inproc://"); !rest.empty())
    return Endpoint{Scheme::kInproc, rest, "", true};
  return bad_endpoint(text, "is not tcp://ADDRESS:PORT, ipc://PATH or inproc://NAME");
}

bool is_same_endpoint(const std::string& a, const std::string& b) {
  const auto first = parse_endpoint(a), second = parse_endpoint(b);
  return first.ok() && second.ok() && *first == *second;
}

Duration back_within(const Endpoint& endpoint) {
  return kLongestConnectPause + kConnectPause + (endpoint.loopback ? Duration{} : kConnectTry);
}

}  // namespace foretoken
