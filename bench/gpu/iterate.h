// The speculative round with synthetic weights and made-up acceptance: the draft does all its work,
// then a seeded oracle puts the kept token in the place of what it proposed with probability a, and
// a wrong one otherwise. The time of a round is honest, and what is accepted must be the kept text.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/gpu/report.h"
#include "bench/gpu/step.h"

namespace foretoken::bench {

struct RoundOptions {
  std::int32_t context = 1024;  // where the text begins
  std::int32_t n_drafted = 10;
  double acceptance = 0.8;
};

// The text that `target` writes by itself from there on, one recorded step after another.
std::vector<std::int32_t> plain_text(Backend& backend,
                                     Step& target,
                                     std::int32_t context,
                                     std::int32_t n_tokens);

// Rounds until the kept text is written again. `same_text`: whether it was.
Iteration measure_rounds(Backend& backend,
                         Step& target,
                         Step& draft,
                         const std::vector<std::int32_t>& kept,
                         const RoundOptions& options,
                         bool& same_text);

}  // namespace foretoken::bench
