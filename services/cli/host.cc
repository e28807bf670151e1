#include "services/cli/host.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>

#include <array>
#include <memory>
#include <string_view>

#include "common/transport/endpoint.h"

namespace foretoken::cli {
namespace {

constexpr std::string_view kTcp = "tcp://";
constexpr const char* kUsualPort = "5555";

struct HostAndPort {
  std::string address;
  std::string port = kUsualPort;
};

// An address of version 6 with a port stands in brackets, so that its colons are not the port's.
HostAndPort host_and_port_of(std::string_view text) {
  const auto colon = text.rfind(':');
  const bool is_bare_v6 = !text.starts_with('[') && text.find(':') != colon;
  HostAndPort place{std::string(text)};
  if (colon != std::string_view::npos && !is_bare_v6 && !text.ends_with(']'))
    place = {std::string(text.substr(0, colon)), std::string(text.substr(colon + 1))};
  if (place.address.starts_with('[') && place.address.ends_with(']'))
    place.address = place.address.substr(1, place.address.size() - 2);
  return place;
}

// As numbers: an endpoint has no name.
Result<std::string> numeric(const std::string& name, Names names) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  if (names == Names::kRefuse) hints.ai_flags = AI_NUMERICHOST;
  addrinfo* found = nullptr;
  if (const int why = ::getaddrinfo(name.c_str(), nullptr, &hints, &found); why != 0)
    return Error{ErrorCode::kConfig, "the host " + name + " has no address: " + ::gai_strerror(why),
                 "--host"};
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(found, ::freeaddrinfo);
  // Version 4 first: it is what the services listen to by default.
  const addrinfo* best = found;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next)
    if (each->ai_family == AF_INET) {
      best = each;
      break;
    }
  std::array<char, NI_MAXHOST> text{};
  ::getnameinfo(best->ai_addr, best->ai_addrlen, text.data(), text.size(), nullptr, 0,
                NI_NUMERICHOST);
  return best->ai_family == AF_INET6 ? "[" + std::string(text.data()) + "]"
                                     : std::string(text.data());
}

}  // namespace

Result<std::string> endpoint_of_host(const std::string& host, Names names) {
  std::string text = host;
  if (!host.starts_with("ipc://")) {
    const HostAndPort place =
        host_and_port_of(std::string_view(host).substr(host.starts_with(kTcp) ? 6 : 0));
    auto address = numeric(place.address, names);
    if (!address.ok()) return address;
    text = std::string(kTcp) + *address + ":" + place.port;
  }
  const auto endpoint = parse_endpoint(text);
  if (!endpoint.ok() || endpoint->port == "*")
    return Error{ErrorCode::kConfig,
                 "\"" + host +
                     "\" is no address of a system: say ADDRESS, NAME, either with a port "
                     "from 1 to 65535 behind a colon, or ipc://PATH",
                 "--host"};
  return text;
}

}  // namespace foretoken::cli
