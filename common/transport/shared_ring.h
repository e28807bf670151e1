// One direction of a link through shared memory: a ring of records that one process writes and
// another reads. Each process writes to its own memory alone (its ring, how much it has produced
// and consumed, whether it sleeps) and reads the other's; what it needs to know of itself it keeps
// beside, in memory of its own. The other side may be hostile or dead: each number of its is read
// once, checked, and a record is copied out before anything in it is looked at. A ring that cannot
// be right is torn, for good; its owner falls back to another way. No clock, no descriptor, no
// allocation but the message's. One thread on each side.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "common/base/bytes.h"

namespace foretoken {

// What a process says about itself, at the start of the memory it owns. The bytes of its ring
// follow on the next page.
struct RingHead {
  alignas(64) std::atomic<std::uint64_t> produced{0};  // bytes written to its own ring, ever
  alignas(64) std::atomic<std::uint64_t> consumed{0};  // bytes taken from the other's ring, ever
  alignas(64) std::atomic<std::uint32_t> sleep{0};     // odd: asleep, ring its bell; counts sleeps
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "atomics between processes");

inline constexpr std::size_t kRingHeadBytes = 4096;  // a page: what follows can be pinned alone
static_assert(sizeof(RingHead) <= kRingHeadBytes);

// A record in the ring, multiples of eight bytes long: length of what follows (u32), its number
// since the start modulo 2^32 (u32), number of parts (u32), size of each part (u32), the parts.
inline constexpr std::size_t kRecordHeadBytes = 8;

class RingWriter {
 public:
  enum class Outcome : std::uint8_t { kWritten, kFull, kTooLarge, kTorn };

  // `bytes` [capacity] is our ring, capacity a power of two; `own` tells what it holds, `other` is
  // the reader's. More than `most_unread` records at a time are not written: what the reader has
  // not read is old.
  RingWriter(std::byte* bytes,
             std::size_t capacity,
             RingHead& own,
             const RingHead& other,
             std::size_t most_unread)
      : bytes_(bytes), capacity_(capacity), own_(own), other_(other), most_unread_(most_unread) {}

  Outcome write(const Frames& frames);
  // True if the reader sleeps and has not been woken from this sleep: ring its bell. After write().
  bool must_wake();
  // How far the reader says it has read, in bytes; only good for comparing.
  std::uint64_t read_to() const { return other_.consumed.load(std::memory_order_acquire); }

 private:
  void put(std::uint64_t at, const void* from, std::size_t n_bytes);

  std::byte* bytes_;
  std::size_t capacity_;
  RingHead& own_;
  const RingHead& other_;
  std::size_t most_unread_;
  std::uint64_t produced_ = 0;
  std::uint32_t n_records_ = 0;
  std::uint32_t woken_from_ = 0;
  std::deque<std::uint64_t> ends_;  // of records not known to be read
};

class RingReader {
 public:
  enum class Outcome : std::uint8_t { kNothing, kMessage, kTorn };

  // `bytes` [capacity] is the writer's ring, `other` what it says of it; `own` is ours.
  RingReader(const std::byte* bytes, std::size_t capacity, RingHead& own, const RingHead& other)
      : bytes_(bytes), capacity_(capacity), own_(own), other_(other) {}

  Outcome read(Frames& frames);
  // Something is there, or something is wrong: read() will tell.
  bool has_something() const { return other_.produced.load() != consumed_; }
  // What read() found wrong.
  const char* why_torn() const { return why_torn_; }

 private:
  Outcome torn(const char* why) {
    why_torn_ = why;
    return Outcome::kTorn;
  }
  void copy(std::uint64_t at, void* into, std::size_t n_bytes) const;

  const std::byte* bytes_;
  std::size_t capacity_;
  RingHead& own_;
  const RingHead& other_;
  std::uint64_t consumed_ = 0;
  std::uint32_t n_records_ = 0;
  Bytes record_;  // the one that is being taken apart
  const char* why_torn_ = "";
};

// The largest record of a ring: two fit, so that a writer never waits for one half read.
constexpr std::size_t largest_record(std::size_t capacity) { return capacity / 2; }

}  // namespace foretoken
