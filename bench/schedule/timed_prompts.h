// Prompts for timed models. A few hundred tokens have a share of right guesses that is off by some
// hundredths, and with it the speed-up by a sixteenth. So those prompts are taken whose texts have
// as many right guesses as asked, taken together within half a guess. Where in a text they are is
// left to chance, so that rounds are as long and as short as those of independent guesses. Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "common/base/ids.h"

namespace foretoken::bench {

struct TimedTexts {
  std::size_t n_texts = 1;
  std::size_t n_tokens = 2;  // of each answer, at least 2
  double acceptance = 0.8;   // share of the draft's tokens that are the target's
};

// Equal for equal arguments, and no two of them alike.
std::vector<std::vector<TokenId>> timed_prompts(const TimedTexts& wanted);

// Right guesses of a draft in the answer to a prompt, its first token aside: a draft may not have
// seen the prompt when that is chosen.
std::size_t n_right_guesses(std::vector<TokenId> prompt, const TimedTexts& wanted);

}  // namespace foretoken::bench
