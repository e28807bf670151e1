// A row of four-bit weights read back, by the definition of its layout alone
// (kernels/include/types.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/include/numerics.h"

namespace foretoken::test {

struct Int4Row {
  std::vector<int> codes;      // 0 to 15, those that fill up the last group too
  std::vector<double> scales;  // by group, the row's in them
  std::vector<double> values;  // by weight
};

inline Int4Row decoded(const std::vector<std::byte>& row,
                       std::int64_t n,
                       std::int64_t group,
                       float scale) {
  Int4Row d;
  const std::int64_t n_groups = (n + group - 1) / group;
  const std::byte* scales = row.data() + n_groups * group / 2;
  for (std::int64_t g = 0; g < n_groups; ++g) {
    std::uint16_t half = 0;
    std::memcpy(&half, scales + 2 * g, sizeof half);
    d.scales.push_back(static_cast<double>(f16_to_f32(half)) * static_cast<double>(scale));
  }
  for (std::int64_t i = 0; i < n_groups * group; ++i) {
    const auto two = std::to_integer<unsigned>(row[static_cast<std::size_t>(i / 8 * 4 + i % 4)]);
    d.codes.push_back(static_cast<int>(i % 8 < 4 ? two & 15u : two >> 4u));
    if (i < n)
      d.values.push_back((d.codes.back() - 8) * d.scales[static_cast<std::size_t>(i / group)]);
  }
  return d;
}

}  // namespace foretoken::test
