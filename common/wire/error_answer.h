// A ClientError as its map on the wire: what went wrong stands under a key of its own.
#pragma once

#include <cstdint>
#include <string>

namespace foretoken::wire {

// What stands under "error".
struct ErrorMap {
  std::string code;
  std::string message;
  std::string param;
  std::uint32_t retry_after_ms = 0;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("code", m.code, "one of a closed list, see below");
    v("message", m.message, "what, which one and the limit");
    v("param", m.param, "the key to blame, or empty");
    v("retry_after_ms", m.retry_after_ms, "when it is worth asking again; 0 = not");
  }
};

struct ErrorAnswer {
  std::string id;
  bool done = true;
  ErrorMap error;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("id", m.id, "the request id, empty if it could not be read");
    v("done", m.done, "true: nothing follows");
    v("error", m.error, "why");
  }
};

}  // namespace foretoken::wire
