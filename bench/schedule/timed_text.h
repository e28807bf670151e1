// What timed models say: the next token is a hash of the last four, a draft's is another one with a
// set probability, and then the right one is among its runners-up as often as runner_up_coverage()
// says. Which tokens of a text a draft has right therefore follows from its prompt alone, so that
// the bench can choose prompts (timed_prompts.h). Nothing of it is a language model. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "common/base/ids.h"

namespace foretoken::bench {

inline constexpr std::int32_t kTimedVocabulary = 256;
// Tokens that the next one depends on. With three, half of the texts of 5000 tokens come back on
// themselves and repeat what was right and wrong there; with four, one in 300 does.
inline constexpr std::int32_t kTimedContext = 4;
inline constexpr std::size_t kTimedRunnersUp = 3;

struct Likeliest {
  TokenId best = -1;
  bool is_right = false;                              // it is the target's
  std::array<TokenId, kTimedRunnersUp> runners_up{};  // the likelier first
};

// After a text that ends with `last`, kTimedContext tokens or all of a shorter one, of a model
// whose tokens are the target's with the probability `acceptance`; 1: of the target.
Likeliest likeliest_after(std::span<const TokenId> last, double acceptance);

// Of all other tokens one, by the hash.
TokenId another_token(TokenId token, std::uint64_t hash);

}  // namespace foretoken::bench
