// The share of the verified guesses that stood.
#pragma once

#include "common/spec/spec_stats.h"

namespace foretoken::test {

inline double acceptance_rate(const SpecStats& stats) {
  if (stats.n_drafted == 0) return 0;
  return static_cast<double>(stats.n_accepted) / static_cast<double>(stats.n_drafted);
}

}  // namespace foretoken::test
