#include "common/base/majority_walk.h"

#include <algorithm>
#include <numeric>

namespace foretoken {
namespace {

struct Majority {
  TokenId token = -1;
  std::size_t n = 0;
};

// Counts what is left of each place's token; a few dozen places are compared sooner than hashed.
Majority majority_of(const std::vector<TokenId>& next) {
  Majority most;
  for (auto at = next.begin(); static_cast<std::size_t>(next.end() - at) > most.n; ++at) {
    if (*at < 0) continue;
    const auto n = static_cast<std::size_t>(std::count(at, next.end(), *at));
    if (n > most.n) most = {*at, n};
  }
  return most;
}

void report_others(const std::vector<std::size_t>& places,
                   const std::vector<TokenId>& next,
                   const Walked& walked,
                   const OnDeviation& on_deviation) {
  std::vector<std::size_t> those;
  const TokenId taken = walked.tokens.back();
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (next[i] < 0 || next[i] == taken) continue;
    const auto here = next.begin() + static_cast<std::ptrdiff_t>(i);
    if (std::find(next.begin(), here, next[i]) != here) continue;  // reported
    those.clear();
    for (std::size_t k = i; k < places.size(); ++k)
      if (next[k] == next[i]) those.push_back(places[k]);
    on_deviation({.n_walked = walked.tokens.size() - 1,
                  .token = next[i],
                  .places = those,
                  .n_places = places.size()});
  }
}

}  // namespace

Walked majority_walk(std::size_t n_places,
                     const WalkLimits& limits,
                     const NextOfPlace& next_of,
                     const OnDeviation& on_deviation) {
  Walked walked;
  std::vector<std::size_t> places(n_places);
  std::iota(places.begin(), places.end(), std::size_t{0});
  std::vector<TokenId> next;
  while (walked.tokens.size() < limits.n_tokens && !places.empty()) {
    next.clear();
    for (const std::size_t place : places) next.push_back(next_of(place, walked.tokens));
    const Majority most = majority_of(next);
    const auto n_all = static_cast<double>(limits.n_all > 0 ? limits.n_all : n_places);
    if (most.n == 0 || static_cast<double>(most.n) < limits.least_share * n_all) break;
    walked.shares.push_back(static_cast<double>(most.n) / static_cast<double>(places.size()));
    walked.tokens.push_back(most.token);
    if (on_deviation && most.n < places.size()) report_others(places, next, walked, on_deviation);
    std::size_t n_kept = 0;
    for (std::size_t i = 0; i < places.size(); ++i)
      if (next[i] == most.token) places[n_kept++] = places[i];
    places.resize(n_kept);
  }
  return walked;
}

// share x L / (L + 1.5), at most 0.94: one token 0.4, two 0.57, four 0.73, eight 0.84. Measured
// acceptance takes over soon.
std::uint8_t lookup_confidence(std::uint32_t match_length, double share) {
  const double length = match_length;
  return static_cast<std::uint8_t>(share * std::min(240.0, 255.0 * length / (length + 1.5)));
}

}  // namespace foretoken
