// What the kernel says about an endpoint. ZeroMQ tries to connect again without end and reports
// neither a refusal nor a connection whose other side stays silent.
#pragma once

#include <cstdint>
#include <string>

namespace foretoken {

enum class Listener : std::uint8_t {
  kNone,     // the kernel refuses a connection, or there is no such socket
  kSome,     // something accepts a connection
  kUnknown,  // no answer within 50 ms, or another error
};

// Connects to tcp:// with a numeric address, or to ipc://, and closes at once. Any other endpoint
// is kUnknown.
Listener listener_at(const std::string& endpoint);

}  // namespace foretoken
