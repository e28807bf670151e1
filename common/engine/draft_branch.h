// What DraftEngine keeps beside a chain: the runners-up of each guess, and branches, texts that go
// on from one of these. Plain data, for the files of that class only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/base/ids.h"
#include "common/spec/guess_outcomes.h"

namespace foretoken {

// The likeliest first; -1: there are no more.
using RunnersUp = std::array<TokenId, GuessOutcomes::kRanks>;
inline constexpr RunnersUp kNoRunnersUp = {-1, -1, -1};
static_assert(kNoRunnersUp.back() == -1, "one for each rank");

// The text where the guess for `position` is wrong and its runner-up comes instead: the chain up to
// there, the runner-up, and guesses after it. Only what differs from the chain is kept.
struct DraftBranch {
  SeqId cache_name{};
  Position position = 0;
  std::size_t rank = 0;                   // of the runner-up
  std::vector<TokenId> tokens;            // from `position` on
  std::vector<std::uint8_t> confidences;  // [n_own()]
  std::vector<RunnersUp> runners_up;      // [n_own()]
  bool is_over = false;                   // no token may follow
  bool has_grown = false;                 // since it was last sent

  std::uint32_t n_own() const { return static_cast<std::uint32_t>(tokens.size()); }
  Position length() const { return position + n_own(); }  // of the text
};

}  // namespace foretoken
