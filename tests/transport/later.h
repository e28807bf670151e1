// A deadline by which a message that comes has come.
#pragma once

#include <chrono>

#include "common/base/clock.h"

namespace foretoken {

inline TimePoint later() { return steady_now() + std::chrono::seconds(10); }

}  // namespace foretoken
