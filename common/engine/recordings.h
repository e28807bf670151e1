// Recordings: the passes that come again and again, kept as recordings of the backend. A shape
// seen for the second time is recorded; from then on it is replayed. Holds a bounded number of
// shapes and forgets the one unused for longest. A recording names addresses, so clear() is owed
// whenever memory that a pass uses has moved. Where the backend gains nothing by it, calls are
// simply made. One thread.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "kernels/include/backend.h"

namespace foretoken {

// What makes the calls of two passes equal but for the contents of memory.
struct PassShape {
  std::int32_t n_rows = 0;
  std::int32_t n_sequences = 0;
  std::int32_t n_choices = 0;
  std::int32_t n_judged = 0;    // sequences that choose at all
  std::int32_t max_blocks = 0;  // columns of the block tables
  std::int32_t n_steps = 0;     // of a chain; 0: a pass by itself
  bool wants_top = false;
  auto operator<=>(const PassShape&) const = default;
};

struct RecordingStats {
  std::uint64_t n_recorded = 0;
  std::uint64_t n_replayed = 0;
  std::uint64_t n_forgotten = 0;  // for room
};

class Recordings {
 public:
  static constexpr std::size_t kMost = 64;       // a graph of a large model is a megabyte or two
  static constexpr std::int32_t kMostRows = 64;  // beyond it launches are no cost worth saving

  explicit Recordings(Backend& backend, std::size_t most = kMost)
      : backend_(backend), most_(most) {}

  // Has the device do `calls`, which must be the same for every equal shape.
  void run(const PassShape& shape, const std::function<void()>& calls);
  void clear() { entries_.clear(); }
  std::size_t size() const { return entries_.size(); }
  const RecordingStats& stats() const { return stats_; }

 private:
  struct Entry {
    std::unique_ptr<Recording> recording;  // from the second time on
    std::uint64_t used = 0;
  };
  void make_room();

  Backend& backend_;
  std::size_t most_;
  std::uint64_t n_uses_ = 0;
  std::map<PassShape, Entry> entries_;
  RecordingStats stats_;
};

}  // namespace foretoken
