// The last passes of a service that runs a model: a ring of plain numbers, so that a pass pays for
// an assignment. Read when a client asks for a trace. Work thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/base/clock.h"
#include "common/messages/messages.h"

namespace foretoken {

struct Pass {
  TimePoint began{};  // to compute: what it waited is before that
  Duration waited{}, computed{}, committed{};
  std::uint32_t n_sequences = 0, n_rows = 0, n_drafted = 0, n_accepted = 0, n_tokens = 0;
};

class PassLog {
 public:
  static constexpr std::size_t kMost = 2048;

  void add(const Pass& pass);
  // `wall_us`: what a clock on the wall shows at `now`.
  wire::Passes passes(TimePoint now, std::uint64_t wall_us) const;

 private:
  std::vector<Pass> ring_;
  std::uint64_t n_ = 0;  // passes since start
};

// Microseconds since 1970.
std::uint64_t wall_micros();

}  // namespace foretoken
