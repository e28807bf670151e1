#include "services/cli/latency_goals.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "services/cli/flag_checks.h"

namespace foretoken::cli {

Result<LatencyGoals> read_goals(std::string_view text) {
  LatencyGoals goals;
  bool has_more = !text.empty();
  while (has_more) {
    const std::string_view goal = text.substr(0, text.find(','));
    has_more = goal.size() < text.size();
    text.remove_prefix(std::min(text.size(), goal.size() + 1));
    const auto colon = goal.find(':');
    const std::string_view name = goal.substr(0, colon);
    std::optional<double>* const place = name == "ttft"   ? &goals.ttft_ms
                                         : name == "tpot" ? &goals.tpot_ms
                                         : name == "e2el" ? &goals.e2el_ms
                                                          : nullptr;
    const auto most = colon == std::string_view::npos ? std::optional<double>()
                                                      : parsed<double>(goal.substr(colon + 1));
    if (place == nullptr || place->has_value() || !most || !std::isfinite(*most) || *most <= 0)
      return Error{ErrorCode::kInvalidValue,
                   "\"" + std::string(goal) +
                       "\" is no goal; it must be ttft:MS, tpot:MS or e2el:MS, each at most once, "
                       "with milliseconds above 0",
                   "--goodput"};
    *place = most;
  }
  return goals;
}

}  // namespace foretoken::cli
