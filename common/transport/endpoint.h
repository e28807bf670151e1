// What an endpoint may look like: tcp:// with a numeric address, ipc:// with a path, inproc:// with
// a name. Anything else libzmq was built with (PGM, NORM, names to be resolved) is refused. And how
// soon a peer that lost the other end of one is connected again.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/clock.h"
#include "common/base/result.h"

namespace foretoken {

enum class Scheme : std::uint8_t { kTcp, kIpc, kInproc };

struct Endpoint {
  Scheme scheme = Scheme::kIpc;
  std::string place;     // address, in one spelling and of IPv6 in brackets; path or name
  std::string port;      // tcp only, without leading zeros; "*" = any
  bool loopback = true;  // reachable from this machine only

  bool operator==(const Endpoint&) const = default;
};

Result<Endpoint> parse_endpoint(const std::string& text);

// Whether both are valid and of one address, however it is spelled.
bool is_same_endpoint(const std::string& a, const std::string& b);

// A try to connect that is not answered ends after this time. On one host each is answered at once.
inline constexpr Duration kConnectTry = std::chrono::seconds(2);
// The pause before the next try grows from kConnectPause to kLongestConnectPause; libzmq adds up to
// kConnectPause at random.
inline constexpr Duration kConnectPause = std::chrono::milliseconds(100);
inline constexpr Duration kLongestConnectPause = std::chrono::milliseconds(500);

// The longest time until a peer that connects to this endpoint is connected again, once the process
// that binds it is back.
Duration back_within(const Endpoint& endpoint);

}  // namespace foretoken
