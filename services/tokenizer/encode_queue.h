// Prompts that wait to be encoded, each once however often it is asked for. Flows (tenants,
// connections) take turns by bytes (common/base/fair_queue.h). Bounded: a flow may hold as many
// bytes and prompts as are still free, so that one alone never takes the room of the others.
// Pure. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>

#include "common/base/fair_queue.h"
#include "common/base/result.h"
#include "common/messages/messages.h"

namespace foretoken {

class EncodeQueue {
 public:
  struct Limits {
    std::size_t max_prompts = 2048;
    std::size_t max_bytes = std::size_t{128} << 20;
  };
  struct WaitingPrompt {
    RequestId id;
    std::uint64_t content = 0;  // a hash of all that is asked
    wire::Encode encode;
    std::size_t bytes = 0;
  };
  enum class Added : std::uint8_t { kNew, kKnown };

  explicit EncodeQueue(const Limits& limits) : limits_(limits) {}

  static std::uint64_t content_of(const wire::Encode& encode);

  // An id that waits with other content is another prompt now: the old one is dropped. An error:
  // no room.
  Result<Added> add(RequestId id, std::uint64_t content, wire::Encode encode);
  // The next in turn of those that fit.
  std::optional<WaitingPrompt> take(const std::function<bool(const WaitingPrompt&)>& fits);
  // True if it waited.
  bool drop(RequestId id);
  std::size_t drop_all();

  bool contains(RequestId id) const { return waiting_.contains(id); }
  std::size_t size() const { return waiting_.size(); }
  std::size_t bytes() const { return bytes_; }

 private:
  struct FlowPrompts {
    std::size_t prompts = 0;
    std::size_t bytes = 0;
  };
  void forget(const WaitingPrompt& prompt);

  Limits limits_;
  FairQueue order_;
  std::unordered_map<RequestId, WaitingPrompt> waiting_;
  std::unordered_map<FlowId, FlowPrompts> held_;
  std::size_t bytes_ = 0;
};

}  // namespace foretoken
