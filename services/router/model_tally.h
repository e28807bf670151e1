// What the requests of one model took, and how they ended, since the router started: for its
// metrics. Each duration is between two moments of this process, but for the target's part of the
// queueing, which the target says. Plain numbers of the work thread.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "common/base/histogram.h"
#include "common/base/vocabulary.h"

namespace foretoken {

struct ModelTally {
  Histogram first_token{latency_bounds()};   // arrival to first token
  Histogram inter_token{latency_bounds()};   // between two arrivals of tokens
  Histogram whole_answer{latency_bounds()};  // arrival to reply
  Histogram queueing{latency_bounds()};
  Histogram prompt_tokens{token_bounds()};
  Histogram answer_tokens{token_bounds()};
  std::array<std::uint64_t, kFinishNames.size()> n_ended{};  // by FinishReason
};

// By the model's name; places stay valid.
using ModelTallies = std::map<std::string, ModelTally>;

}  // namespace foretoken
