// What an endpoint may look like: tcp:// with a numeric address, ipc:// with a path, inproc:// with
// a name. Anything else libzmq was built with (PGM, NORM, names to be resolved) is refused.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/result.h"

namespace foretoken {

enum class Scheme : std::uint8_t { kTcp, kIpc, kInproc };

struct Endpoint {
  Scheme scheme = Scheme::kIpc;
  std::string place;     // address, path or name
  std::string port;      // tcp only; "*" = any
  bool loopback = true;  // reachable from this machine only
};

Result<Endpoint> parse_endpoint(const std::string& text);

}  // namespace foretoken
