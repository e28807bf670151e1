// What most of several places go on with: a guess that is looked up rather than computed. At each
// step the token that most of the places have next is taken and the places that have another are
// dropped, until few of them are left. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "common/base/ids.h"

namespace foretoken {

struct Walked {
  std::vector<TokenId> tokens;
  std::vector<double> shares;  // beside tokens: of the places that had come so far
};

struct WalkLimits {
  std::size_t n_tokens = 0;  // at most
  double least_share = 0.1;  // of all places, that must agree with what was taken
};

// The token that a place has after those walked; -1: it has none.
using NextOfPlace = std::function<TokenId(std::size_t place, const std::vector<TokenId>& walked)>;

// Where two tokens are equally frequent, that of the earlier place is taken.
Walked majority_walk(std::size_t n_places, const WalkLimits& limits, const NextOfPlace& next_of);

// 255 * P(the next token is right) before anything was learnt: `share` of the places where the last
// so many tokens were found have it next.
std::uint8_t lookup_confidence(std::uint32_t match_length, double share);

}  // namespace foretoken
