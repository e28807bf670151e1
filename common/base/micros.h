// Durations as whole microseconds, as the wire has them. A negative one is zero.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/base/clock.h"

namespace foretoken {

inline std::uint64_t micros(Duration duration) {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(
      0, std::chrono::duration_cast<std::chrono::microseconds>(duration).count()));
}

// For fields of 32 bits: what is longer than 71 minutes is their largest number.
inline std::uint32_t short_micros(Duration duration) {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(micros(duration), 0xFFFFFFFF));
}

}  // namespace foretoken
