// Rotary position embedding: the angles of every position, computed in double and rounded once.
// Pure arithmetic, the same on every machine up to the last bit of the C library's cos, sin, pow
// and log.
#pragma once

#include <cstdint>
#include <vector>

#include "common/model/config.h"

namespace foretoken {

// Radians per position of each pair of dimensions.  [head_dim / 2]
std::vector<double> rope_inverse_frequencies(const RopeSpec& rope, std::int32_t head_dim);

// What cos and sin are multiplied by (yarn's softmax temperature); 1 for other types.
double rope_attention_factor(const RopeSpec& rope);

struct RopeTables {
  std::vector<float> cos;  // [n_positions, head_dim / 2], attention factor folded in
  std::vector<float> sin;
};

RopeTables make_rope_tables(const RopeSpec& rope, std::int32_t head_dim, std::int64_t n_positions);

}  // namespace foretoken
