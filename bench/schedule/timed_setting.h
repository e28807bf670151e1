// The settings of a timed model: how long its passes take, how often its guesses stand, how far
// away it is. The command writes it as one word of its child's command line, the child reads it.
// Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace foretoken::bench {

struct TimedSetting {
  double pass_ms = 6;     // of one row; more take as row_curve.h says
  double acceptance = 1;  // share of its tokens that are the target's own; 1 = it is the target
  double rtt_ms = 0;      // a draft: to targets and back, through a relay; 0 = there is none
  std::string lock;       // path of a file that is locked during a pass; "" = cores of its own
};

// What precedes the word: it is taken away before a service reads its flags.
inline constexpr std::string_view kTimedFlag = "--timed";
std::string text_of(const TimedSetting& setting);
Result<TimedSetting> timed_setting(std::string_view text);

}  // namespace foretoken::bench
