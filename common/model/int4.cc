#include "common/model/int4.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "common/base/check.h"
#include "common/model/families.h"
#include "kernels/include/numerics.h"
#include "kernels/include/types.h"

namespace foretoken {
namespace {

constexpr std::int64_t kMostGroup = 128;
constexpr std::int64_t kFineBelow = 1000000000;  // parameters
// Of the largest magnitude over 8. Above 1 the largest value is not the last code, which a group
// whose values crowd at both ends is better off with.
constexpr float kFactors[] = {1.06f, 1.01f, 0.96f, 0.91f, 0.86f, 0.81f, 0.76f, 0.71f};

float to_nearest(float x) { return (x + 0x1.8p23f) - 0x1.8p23f; }

float code_of(float x, float inverse) { return std::clamp(to_nearest(x * inverse), -8.0f, 7.0f); }

float squared_error(std::span<const float> values, float scale, float inverse) {
  constexpr std::size_t kSums = 8;  // sums side by side, so that the compiler can use vectors
  std::array<float, kSums> sums{};
  std::size_t i = 0;
  for (; i + kSums <= values.size(); i += kSums)
    for (std::size_t lane = 0; lane < kSums; ++lane) {
      const float x = values[i + lane], error = x - code_of(x, inverse) * scale;
      sums[lane] += error * error;
    }
  for (; i < values.size(); ++i) {
    const float error = values[i] - code_of(values[i], inverse) * scale;
    sums[0] += error * error;
  }
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

// The value of largest magnitude; of equal ones the first.
float extreme_of(std::span<const float> values) {
  float extreme = 0;
  for (const float x : values)
    if (std::fabs(x) > std::fabs(extreme)) extreme = x;
  return extreme;
}

// In units of the row's scale, as float16 holds it.
std::uint16_t best_scale(std::span<const float> values) {
  const float extreme = extreme_of(values);
  std::uint16_t best = 0;
  float least = -1;
  for (const float factor : kFactors) {
    const std::uint16_t half = f32_to_f16(extreme / -8.0f * factor);
    const float scale = f16_to_f32(half), inverse = 1.0f / scale;
    if (scale == 0 || !std::isfinite(inverse)) continue;
    const float error = squared_error(values, scale, inverse);
    if (least >= 0 && !(error < least)) continue;
    least = error;
    best = half;
  }
  return best;
}

void write_codes(std::span<const float> values, float scale, std::int64_t group, std::byte* to) {
  const float inverse = scale == 0 ? 0.0f : 1.0f / scale;
  const auto n = static_cast<std::int64_t>(values.size());
  const auto code = [&](std::int64_t i) {
    const float c = i < n ? code_of(values[static_cast<std::size_t>(i)], inverse) : 0.0f;
    return static_cast<unsigned>(static_cast<int>(c) + 8);
  };
  for (std::int64_t i = 0; i < group; i += 8)
    for (std::int64_t j = 0; j < 4; ++j)
      to[i / 2 + j] = static_cast<std::byte>(code(i + j) | code(i + j + 4) << 4u);
}

// The largest magnitude becomes 2^13 to 2^14: a group's scale is then at most 2^11, and down to
// 2^-25 of that it has all bits of a float16.
float row_scale(float largest) {
  if (largest == 0) return 1;
  const int exponent = std::clamp(std::ilogb(largest) - 13, -126, 127);
  return std::ldexp(1.0f, exponent);
}

}  // namespace

bool is_held_in_int4(std::string_view tensor) {
  return tensor != names::kEmbedding && tensor != names::kHead &&
         !tensor.ends_with("mlp.down_proj.weight");
}

std::int64_t int4_group(const ModelConfig& config) {
  std::int64_t n_parameters = 0, group = kMostGroup;
  for (const ExpectedTensor& tensor : expected_tensors(config)) {
    std::int64_t n = 1;
    for (const std::int64_t dimension : tensor.shape) n *= dimension;
    n_parameters += n;
  }
  if (n_parameters <= kFineBelow) return 32;
  const std::int64_t attention = std::int64_t{config.n_heads} * config.head_dim;
  while (group > 32 && (config.n_hidden % group != 0 || attention % group != 0)) group /= 2;
  return group;
}

std::optional<float> quantise_row_to_int4(std::span<const float> row,
                                          std::int64_t group,
                                          std::byte* to) {
  FORETOKEN_CHECK(is_int4_group(group));
  if (!std::ranges::all_of(row, [](float x) { return std::isfinite(x); })) return std::nullopt;
  const float scale = row_scale(std::fabs(extreme_of(row))), inverse = 1.0f / scale;
  const auto n = static_cast<std::int64_t>(row.size());
  std::byte* scales = to + int4_code_bytes(n, group);
  std::array<float, kMostGroup> values{};
  for (std::int64_t begin = 0; begin < n; begin += group, scales += sizeof(std::uint16_t)) {
    const auto some = row.subspan(static_cast<std::size_t>(begin),
                                  static_cast<std::size_t>(std::min(group, n - begin)));
    std::ranges::transform(some, values.begin(), [&](float x) { return x * inverse; });
    const std::span<const float> scaled(values.data(), some.size());
    const std::uint16_t best = best_scale(scaled);
    write_codes(scaled, f16_to_f32(best), group, to + begin / 2);
    std::memcpy(scales, &best, sizeof best);
  }
  return scale;
}

}  // namespace foretoken
