// What most of several places go on with: a guess that is looked up rather than computed. At each
// step the token that most of the places have next is taken and the places that have another are
// dropped, until few of them are left. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
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
  std::size_t n_all = 0;     // all places, where only some are walked; 0: those that are
};

// The token that a place has after those walked; -1: it has none.
using NextOfPlace = std::function<TokenId(std::size_t place, const std::vector<TokenId>& walked)>;

// Places that have another token next than the one taken: they are dropped.
struct Deviation {
  std::size_t n_walked = 0;  // tokens before it
  TokenId token = -1;
  std::span<const std::size_t> places;
  std::size_t n_places = 0;  // that had come so far, with any token next
};
using OnDeviation = std::function<void(const Deviation& deviation)>;

// Where two tokens are equally frequent, that of the earlier place is taken. Places are asked in
// their order, at each step those that are left. Deviations of a step come in the order of their
// first places.
Walked majority_walk(std::size_t n_places,
                     const WalkLimits& limits,
                     const NextOfPlace& next_of,
                     const OnDeviation& on_deviation = {});

// 255 * P(the next token is right) before anything was learnt: `share` of the places where the last
// so many tokens were found have it next.
std::uint8_t lookup_confidence(std::uint32_t match_length, double share);

}  // namespace foretoken
