// Log probabilities of one delivered token: from the target's engine to the client's answer. Plain
// data; fields() lists it for the wire.
#pragma once

#include <string_view>
#include <vector>

#include "common/base/ids.h"

namespace foretoken {

struct TokenLogprobs {
  static constexpr std::string_view kName = "TokenLogprobs";
  float logprob = 0;
  std::vector<TokenId> top_ids;     // as many as were asked for
  std::vector<float> top_logprobs;  // beside top_ids
  bool operator==(const TokenLogprobs&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v(1, "logprob", m.logprob, "natural log, from the target's raw logits");
    v(2, "top_ids", m.top_ids, "likeliest ids, best first");
    v(3, "top_logprobs", m.top_logprobs, "theirs, same order");
  }
};

}  // namespace foretoken
