// Replies that were given a while ago, for clients that lost them and ask again with the same id;
// and for as long what was asked under each id whose request ended in any way, for an id means one
// request: what its workers still say may arrive late. Bounded in number, bytes and time. A reply
// is kept packed: one piece of memory and few bytes, where the values of one with log-probabilities
// are hundreds of pieces. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/messages/client.h"

namespace foretoken {

class FinishedReplies {
 public:
  struct Limits {
    std::size_t n_replies = 1024;
    std::size_t n_ids = 65536;
    std::size_t n_bytes = 32u << 20;
    Duration age = std::chrono::seconds(60);
  };

  explicit FinishedReplies(const Limits& limits) : limits_(limits) {}

  // Keeps a reply under an id that has none yet, unless it alone is over the limit; older ones may
  // go for it. `content` is a hash of what was asked.
  void keep(RequestId id, std::uint64_t content, const wire::ClientReply& reply, TimePoint now);
  // The request of this id is over. `series`: that of the last message that its client was sent.
  void end(RequestId id, std::uint64_t content, std::uint32_t series, TimePoint now);
  // Its reply was sent once more; `series` is that of this message.
  void sent_again(RequestId id, std::uint32_t series);
  void forget_old(TimePoint now);
  bool has(RequestId id) const { return replies_.contains(id); }
  // Nothing: never given, or forgotten.
  std::optional<wire::ClientReply> find(RequestId id) const;
  // Of a request that ended a while ago. Known for as long as find() gives its reply.
  std::optional<std::uint64_t> content_of(RequestId id) const;
  // Of a request that ended a while ago: the series in which its client was sent the end last.
  std::optional<std::uint32_t> series_of(RequestId id) const;

 private:
  struct Finished {
    std::uint64_t content = 0;
    std::string bytes;
    TimePoint at{};
    std::size_t n_bytes() const { return kEntryBytes + bytes.size(); }
  };
  static constexpr std::size_t kEntryBytes = 192;  // what an entry takes beside its bytes
  struct Ended {
    std::uint64_t content = 0;
    std::uint32_t series = 0;
    TimePoint at{};
  };

  Limits limits_;
  std::unordered_map<RequestId, Finished> replies_;
  std::deque<RequestId> order_;
  std::size_t n_bytes_ = 0;
  std::unordered_map<RequestId, Ended> ended_;
  std::deque<std::pair<RequestId, TimePoint>> ends_;  // one that ended again is here twice
};

}  // namespace foretoken
