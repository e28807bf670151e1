// What a target can tell a draft before its own step is done: that a verdict is on its way to a
// board that the draft's device reads. A hint beside the protocol: PROPOSE follows all the same,
// and a draft that has begun by then has its answer sooner. The engine tells, between queueing a
// step and waiting for it; the owner of the links knows whom. Called by the engine's thread.
#pragma once

#include <cstdint>
#include <span>

#include "common/base/ids.h"
#include "common/spec/prefix_hash.h"

namespace foretoken {

// A step under way verifies n_drafted tokens after the first `base` of this sequence.
struct VerdictNotice {
  SeqId seq{};
  Position base = 0;      // committed tokens
  PrefixHash prefix = 0;  // of these
  std::uint32_t n_drafted = 0;
  PrefixHash drafted = 0;    // of these and the drafted ones
  std::int32_t entry = 0;    // of the board, where the verdict will stand
  std::uint64_t tag = 0;     // under this tag
  std::uint32_t budget = 0;  // tokens wanted after the verdict's
};

class RunAhead {
 public:
  virtual ~RunAhead() = default;
  // Whether the draft of this sequence reads the board.
  virtual bool reads_board(SeqId seq) const = 0;
  virtual void announce(std::span<const VerdictNotice> notices) = 0;
};

}  // namespace foretoken
