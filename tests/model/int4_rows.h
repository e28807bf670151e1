// A row of four-bit weights read back, by the definition of its layout alone
// (kernels/include/types.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/include/numerics.h"
#include "kernels/include/types.h"

namespace foretoken::test {

struct Int4Row {
  std::vector<int> codes;      // 0 to 15, those that fill up the last group too
  std::vector<double> scales;  // by group, the row's in them
  std::vector<int> zeros;      // by group; of kE2m1 and kNonUniform without meaning
  std::vector<double> values;  // by weight
};

// A sign, two bits of exponent with a bias of 1, one of mantissa; an exponent of 0 is subnormal.
inline int twice_e2m1(int code) {
  const int exponent = code >> 1 & 3, mantissa = code & 1;
  const int magnitude = exponent == 0 ? mantissa : (2 + mantissa) << (exponent - 1);
  return code >= 8 ? -magnitude : magnitude;
}

// Written out once more, so that a slip in the product's table is seen.
inline constexpr std::array kNonUniform{-17, -13, -10, -8, -6, -4, -2, -1,
                                        0,   1,   3,   5,  7,  9,  12, 15};

inline Int4Row decoded(const std::vector<std::byte>& row,
                       std::int64_t n,
                       std::int64_t group,
                       float scale,
                       Int4Kind kind = Int4Kind::kOffset) {
  Int4Row d;
  const std::int64_t n_groups = (n + group - 1) / group;
  const std::byte* scales = row.data() + n_groups * group / 2;
  for (std::int64_t g = 0; g < n_groups; ++g) {
    std::uint16_t half = 0;
    std::memcpy(&half, scales + 2 * g, sizeof half);
    d.scales.push_back(static_cast<double>(f16_to_f32(half)) * static_cast<double>(scale));
    d.zeros.push_back(kind == Int4Kind::kZeroPoints ? std::to_integer<int>(scales[2 * n_groups + g])
                                                    : 8);
  }
  for (std::int64_t i = 0; i < n_groups * group; ++i) {
    const auto two = std::to_integer<unsigned>(row[static_cast<std::size_t>(i / 8 * 4 + i % 4)]);
    d.codes.push_back(static_cast<int>(i % 8 < 4 ? two & 15u : two >> 4u));
    const auto g = static_cast<std::size_t>(i / group);
    const int code = d.codes.back();
    const int value = kind == Int4Kind::kE2m1         ? twice_e2m1(code)
                      : kind == Int4Kind::kNonUniform ? kNonUniform[static_cast<std::size_t>(code)]
                                                      : code - d.zeros[g];
    if (i < n) d.values.push_back(value * d.scales[g]);
  }
  return d;
}

}  // namespace foretoken::test
