// A board in a device's memory on which a target's device leaves verdicts, and from which the
// device of a draft on the same machine takes them: between the two stands no host. A target makes
// a board and hands its card to its drafts; each opens a view. A board holds no truth and no
// promise: what is read there is believed as far as it can be a verdict, and used for guessing
// only. Each side belongs to the backend that made it and must not outlive it; that backend's
// thread uses it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace foretoken {

// What stands in one place of a board. The tag is written last.
struct alignas(16) BoardEntry {
  std::uint64_t tag = 0;  // whoever reads knows which to expect; 0: nothing was ever written
  std::int32_t n_accepted = 0;
  std::int32_t next_token = -1;
};
static_assert(sizeof(BoardEntry) == 16);

class VerdictBoard {
 public:
  virtual ~VerdictBoard() = default;
  VerdictBoard() = default;
  VerdictBoard(const VerdictBoard&) = delete;
  VerdictBoard& operator=(const VerdictBoard&) = delete;

  virtual BoardEntry* entries() const = 0;  // a device address: [n_entries()]
  virtual std::int32_t n_entries() const = 0;
  // What a process on this machine needs to open a view, at most kMostCard bytes. Opaque.
  virtual std::span<const std::byte> card() const = 0;
  // Queued after the posts of a step: views wait for the last mark before they look. Whoever is
  // told of a step is told after this call.
  virtual void mark() = 0;

  static constexpr std::size_t kMostCard = 256;
  static constexpr std::int32_t kMostEntries = 65536;
};

class BoardView {
 public:
  virtual ~BoardView() = default;
  BoardView() = default;
  BoardView(const BoardView&) = delete;
  BoardView& operator=(const BoardView&) = delete;

  virtual const BoardEntry* entries() const = 0;  // an address of this device: [n_entries()]
  virtual std::int32_t n_entries() const = 0;
  // Queues: what is queued from now on begins when the board's last mark has been reached.
  virtual void wait() = 0;
  // On the host: until everything queued so far is done. False if it is not after `limit`: the
  // board's owner may have died with its mark under way, and the queue may never go on.
  virtual bool settled(std::chrono::nanoseconds limit) = 0;
};

}  // namespace foretoken
