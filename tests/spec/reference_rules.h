// The rules of a row by their definition, for tests: looks back over the whole text for every id,
// keeps nothing.
#pragma once

#include <algorithm>
#include <limits>
#include <span>
#include <vector>

#include "common/base/sampling_params.h"
#include "kernels/include/ops.h"

namespace foretoken {

inline constexpr float kMasked = -std::numeric_limits<float>::infinity();
using Row = std::vector<Adjustment>;  // sorted by id

// The definition, by looking back over the whole text for every id.
inline Row row_by_definition(const SamplingParams& params,
                             std::span<const TokenId> eos_ids,
                             std::span<const TokenId> prompt,
                             std::span<const TokenId> output,
                             TokenId vocab) {
  Row out;
  for (TokenId id = 0; id < vocab; ++id) {
    const auto in_output = std::count(output.begin(), output.end(), id);
    const bool seen = in_output > 0 || std::find(prompt.begin(), prompt.end(), id) != prompt.end();
    Adjustment entry{.id = id, .repetition = seen ? params.repetition_penalty : 1.0f, .add = 0};
    double add = 0;
    for (const auto& [biased, bias] : params.logit_bias)
      if (biased == id) add += static_cast<double>(bias);
    if (in_output > 0)
      add -= static_cast<double>(params.presence_penalty) +
             static_cast<double>(params.frequency_penalty) * static_cast<double>(in_output);
    entry.add = static_cast<float>(add);
    bool masked = false;
    for (const auto& word : params.bad_words) {
      const auto head = std::span<const TokenId>(word).first(word.size() - 1);
      masked |= word.back() == id && head.size() <= output.size() &&
                std::equal(head.begin(), head.end(),
                           output.end() - static_cast<std::ptrdiff_t>(head.size()));
    }
    const bool ends =
        std::count(params.stop_token_ids.begin(), params.stop_token_ids.end(), id) > 0 ||
        (!params.ignore_eos && std::count(eos_ids.begin(), eos_ids.end(), id) > 0);
    masked |= ends && output.size() < params.min_tokens;
    if (masked) entry.add = kMasked;
    if (entry.add != 0 || entry.repetition != 1) out.push_back(entry);
  }
  return out;
}

}  // namespace foretoken
