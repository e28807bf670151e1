// What a draft keeps of a guess beside its token. Plain data.
#pragma once

#include <array>
#include <cstdint>

#include "common/base/ids.h"
#include "common/spec/guess_outcomes.h"

namespace foretoken {

// What comes instead where the guess is wrong, the likeliest first; -1: there are no more.
using RunnersUp = std::array<TokenId, GuessOutcomes::kRanks>;
inline constexpr RunnersUp kNoRunnersUp = {-1, -1, -1};
static_assert(kNoRunnersUp.back() == -1, "one for each rank");

struct Guess {
  std::uint8_t confidence = 0;  // probability times 255
  RunnersUp runners_up = kNoRunnersUp;
};

}  // namespace foretoken
