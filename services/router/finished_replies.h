// Replies that were given a while ago, for clients that lost them and ask again with the same id.
// Bounded in number, bytes and time. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <unordered_map>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/wire/client.h"

namespace foretoken {

class FinishedReplies {
 public:
  struct Limits {
    std::size_t n_replies = 1024;
    std::size_t n_bytes = 32u << 20;
    Duration age = std::chrono::seconds(60);
  };
  struct Finished {
    wire::ClientReply reply;
    std::uint64_t content = 0;  // a hash of what was asked
    TimePoint at{};
    std::size_t n_bytes = 0;
  };

  explicit FinishedReplies(const Limits& limits) : limits_(limits) {}

  // Keeps a reply under an id that has none yet, unless it alone is over the limit; older ones may
  // go for it.
  void keep(RequestId id, std::uint64_t content, wire::ClientReply reply, TimePoint now);
  void forget_old(TimePoint now);
  // Null: never given, or forgotten. Valid until the next call.
  const Finished* find(RequestId id) const;

 private:
  Limits limits_;
  std::unordered_map<RequestId, Finished> replies_;
  std::deque<RequestId> order_;
  std::size_t n_bytes_ = 0;
};

}  // namespace foretoken
