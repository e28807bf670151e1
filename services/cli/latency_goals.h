// The limits that a request must keep to count as good, as a flag says them.
#pragma once

#include <string_view>

#include "common/base/result.h"
#include "services/cli/bench_result.h"

namespace foretoken::cli {

// "ttft:500,tpot:50": names and milliseconds, each once; "" = none.
Result<LatencyGoals> read_goals(std::string_view text);

}  // namespace foretoken::cli
