#include "common/model/int4.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

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

std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }

float to_nearest(float x) { return (x + 0x1.8p23f) - 0x1.8p23f; }

// What the search needs of a kind of codes: the value nearest to x, among those that codes stand
// for; its code; and what the value of largest magnitude is divided by to have a scale.
struct Offset8 {
  static float nearest(float x) { return std::clamp(to_nearest(x), -8.0f, 7.0f); }
  static std::uint8_t nearest_code(float x) {
    return static_cast<std::uint8_t>(static_cast<int>(nearest(x)) + 8);
  }
  static constexpr float kExtreme = -8.0f;
};

// kE2m1Table: steps of 1 up to 4, of 2 up to 8, of 4 up to 12. Halfway, the even code.
struct E2m1 {
  static float nearest(float x) {
    const float magnitude = std::min(std::fabs(x), 12.0f);
    const float step = magnitude < 4 ? 1.0f : magnitude < 8 ? 2.0f : 4.0f;
    const float inverse_step = magnitude < 4 ? 1.0f : magnitude < 8 ? 0.5f : 0.25f;
    return std::copysign(to_nearest(magnitude * inverse_step) * step, x);
  }
  static std::uint8_t nearest_code(float x) {
    const float value = nearest(x), magnitude = std::fabs(value);
    const float index = magnitude <= 4   ? magnitude
                        : magnitude <= 8 ? magnitude * 0.5f + 2
                                         : magnitude * 0.25f + 4;
    return static_cast<std::uint8_t>(static_cast<int>(index) + (std::signbit(value) ? 8 : 0));
  }
  static constexpr float kExtreme = 12.0f;
};

// kNonUniformTable. Borders between values are multiples of a half: what is nearest to a number is
// decided by the half that it lies in. Halfway, the larger value.
struct NonUniform {
  static constexpr int kLeast = kNonUniformTable.front(), kMost = kNonUniformTable.back();
  static constexpr std::size_t kHalves = 2 * (kMost - kLeast) + 1;
  // The codes of what is nearest to kLeast + half / 2, and to all up to the next half.
  static constexpr std::array<std::uint8_t, kHalves> kCodes = [] {
    std::array<std::uint8_t, kHalves> codes{};
    std::uint8_t code = 0;
    for (std::size_t half = 0; half < kHalves; ++half) {
      const int twice = 2 * kLeast + static_cast<int>(half);
      while (code < 15 && kNonUniformTable[code] + kNonUniformTable[code + 1u] <= twice) ++code;
      codes[half] = code;
    }
    return codes;
  }();
  static constexpr std::array<float, kHalves> kValues = [] {
    std::array<float, kHalves> values{};
    for (std::size_t half = 0; half < kHalves; ++half)
      values[half] = kNonUniformTable[kCodes[half]];
    return values;
  }();

  static std::size_t half_of(float x) {
    const float twice = 2 * std::clamp(x, float{kLeast}, float{kMost});
    const int truncated = static_cast<int>(twice);
    const int floor = truncated - static_cast<int>(static_cast<float>(truncated) > twice);
    return static_cast<std::size_t>(floor - 2 * kLeast);
  }
  static float nearest(float x) { return kValues[half_of(x)]; }
  static std::uint8_t nearest_code(float x) { return kCodes[half_of(x)]; }
  static constexpr float kExtreme = kLeast;
  static_assert(-kLeast >= kMost);
};

template <class Kind>
float squared_error(std::span<const float> values, float scale, float inverse) {
  constexpr std::size_t kSums = 8;  // sums side by side, so that the compiler can use vectors
  std::array<float, kSums> sums{};
  std::size_t i = 0;
  for (; i + kSums <= values.size(); i += kSums)
    for (std::size_t lane = 0; lane < kSums; ++lane) {
      const float x = values[i + lane], error = x - Kind::nearest(x * inverse) * scale;
      sums[lane] += error * error;
    }
  for (; i < values.size(); ++i) {
    const float error = values[i] - Kind::nearest(values[i] * inverse) * scale;
    sums[0] += error * error;
  }
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

template <class Kind>
float weighted_error(std::span<const float> values,
                     std::span<const float> importance,
                     float scale,
                     float inverse) {
  double sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float error = values[i] - Kind::nearest(values[i] * inverse) * scale;
    sum += static_cast<double>(importance[i]) * static_cast<double>(error * error);
  }
  return static_cast<float>(sum);
}

// The value of largest magnitude; of equal ones the first.
float extreme_of(std::span<const float> values) {
  float extreme = 0;
  for (const float x : values)
    if (std::fabs(x) > std::fabs(extreme)) extreme = x;
  return extreme;
}

// A scale in units of a row's, a power of two, as a type holds it beside that of the row.
float held_scale(float scale, float unit, DType type) {
  if (type == DType::kBf16) scale = bf16_to_f32(f32_to_bf16(scale));
  if (type == DType::kF16) return f16_to_f32(f32_to_f16(scale * unit)) / unit;
  return f16_to_f32(f32_to_f16(scale));
}

// Of values and in units of the row's scale.
template <class Kind>
float best_scale(std::span<const float> values,
                 std::span<const float> importance,
                 float unit,
                 DType type) {
  // Columns that nothing came through are all alike.
  const bool is_weighted = std::ranges::any_of(importance, [](float i) { return i > 0; });
  const float extreme = extreme_of(values);
  float best = 0, least = -1;
  for (const float factor : kFactors) {
    const float scale = held_scale(extreme / Kind::kExtreme * factor, unit, type),
                inverse = 1.0f / scale;
    if (scale == 0 || !std::isfinite(inverse)) continue;
    const float error = is_weighted ? weighted_error<Kind>(values, importance, scale, inverse)
                                    : squared_error<Kind>(values, scale, inverse);
    if (least >= 0 && !(error < least)) continue;
    least = error;
    best = scale;
  }
  return best;
}

// Of values, and of q, what is nearest to each times `inverse`.
struct Moments {
  float values_by_q = 0, q_by_q = 0;
};

Moments moments_of(std::span<const float> values, float inverse) {
  std::array<Moments, 4> sums{};  // side by side: an addition waits for the one before it
  const auto add = [&](float x, Moments& sum) {
    const float q = NonUniform::nearest(x * inverse);
    sum.values_by_q += x * q;
    sum.q_by_q += q * q;
  };
  std::size_t i = 0;
  for (; i + sums.size() <= values.size(); i += sums.size()) {
    add(values[i], sums[0]);
    add(values[i + 1], sums[1]);
    add(values[i + 2], sums[2]);
    add(values[i + 3], sums[3]);
  }
  for (; i < values.size(); ++i) add(values[i], sums[0]);
  return {(sums[0].values_by_q + sums[1].values_by_q) + (sums[2].values_by_q + sums[3].values_by_q),
          (sums[0].q_by_q + sums[1].q_by_q) + (sums[2].q_by_q + sums[3].q_by_q)};
}

// Nearest values of this table are a search of their own and slow: so three scales, and for the
// codes of each the scale with the least squared error, sum(values * q) / sum(q * q). That takes
// sum(values * q)^2 / sum(q * q) away from the sum of the squares.
template <>
float best_scale<NonUniform>(std::span<const float> values,
                             std::span<const float> importance,
                             float unit,
                             DType type) {
  FORETOKEN_CHECK(importance.empty(), "kNonUniform takes no importance");
  const float extreme = extreme_of(values);
  float best = 0, most = -1;
  for (const float factor : {1.05f, 0.92f, 0.8f}) {
    const float inverse = NonUniform::kExtreme / (extreme * factor);
    if (!std::isfinite(inverse)) continue;
    const Moments sums = moments_of(values, inverse);
    const float taken_away = sums.values_by_q * sums.values_by_q / sums.q_by_q;
    if (!(taken_away > most)) continue;
    most = taken_away;
    best = sums.values_by_q / sums.q_by_q;
  }
  return held_scale(best, unit, type);
}

// The largest magnitude becomes 2^13 to 2^14: a group's scale is then at most 2^11, and down to
// 2^-25 of that it has all bits of a float16.
float unit_for(float largest) {
  if (largest == 0) return 1;
  const int exponent = std::clamp(std::ilogb(largest) - 13, -126, 127);
  return std::ldexp(1.0f, exponent);
}

// As quantise_groups(); values are finite.
template <class Kind>
void quantise_as(std::span<const float> row,
                 const Int4Search& search,
                 std::span<std::uint8_t> codes,
                 std::span<float> scales) {
  const std::int64_t group = search.group;
  // Tiny values in units of their own: squares of them would vanish.
  const float unit = unit_for(std::fabs(extreme_of(row))), inverse_unit = 1.0f / unit;
  std::array<float, kMostGroup> values{};
  for (std::size_t begin = 0, g = 0; begin < row.size(); begin += size(group), ++g) {
    const auto some = row.subspan(begin, std::min(size(group), row.size() - begin));
    std::ranges::transform(some, values.begin(), [&](float x) { return x * inverse_unit; });
    const std::span<const float> scaled(values.data(), some.size());
    const auto importance = search.importance.empty()
                                ? search.importance
                                : search.importance.subspan(begin, some.size());
    const float scale = best_scale<Kind>(scaled, importance, unit, search.scale_type);
    const float inverse = scale == 0 ? 0.0f : 1.0f / scale;
    std::ranges::transform(scaled, codes.begin() + static_cast<std::ptrdiff_t>(begin),
                           [&](float x) { return Kind::nearest_code(x * inverse); });
    scales[g] = scale * unit;
  }
}

}  // namespace

bool is_held_in_int4(std::string_view tensor, Int4Kind kind) {
  return tensor != names::kEmbedding && tensor != names::kHead &&
         (kind == Int4Kind::kNonUniform || !tensor.ends_with("mlp.down_proj.weight"));
}

std::int64_t int4_group(const ModelConfig& config, bool with_down_projections) {
  std::int64_t n_parameters = 0, group = kMostGroup;
  for (const ExpectedTensor& tensor : expected_tensors(config)) {
    std::int64_t n = 1;
    for (const std::int64_t dimension : tensor.shape) n *= dimension;
    n_parameters += n;
  }
  if (n_parameters <= kFineBelow) return 32;
  const std::int64_t attention = std::int64_t{config.n_heads} * config.head_dim;
  const std::int64_t ffn = with_down_projections ? config.n_ffn : 0;
  while (group > 32 && (config.n_hidden % group != 0 || attention % group != 0 || ffn % group != 0))
    group /= 2;
  return group;
}

bool quantise_groups(std::span<const float> row,
                     const Int4Search& search,
                     std::span<std::uint8_t> codes,
                     std::span<float> scales) {
  FORETOKEN_CHECK(is_int4_group(search.group) && codes.size() == row.size());
  FORETOKEN_CHECK(search.importance.empty() || search.importance.size() == row.size());
  if (!std::ranges::all_of(row, [](float x) { return std::isfinite(x); })) return false;
  if (search.kind == Int4Kind::kE2m1)
    quantise_as<E2m1>(row, search, codes, scales);
  else if (search.kind == Int4Kind::kNonUniform)
    quantise_as<NonUniform>(row, search, codes, scales);
  else
    quantise_as<Offset8>(row, search, codes, scales);
  return true;
}

float write_int4_row(std::span<const std::uint8_t> codes,
                     std::span<const float> scales,
                     std::span<const std::uint8_t> zeros,
                     std::int64_t group,
                     std::byte* to) {
  FORETOKEN_CHECK(is_int4_group(group));
  const auto n = static_cast<std::int64_t>(codes.size());
  FORETOKEN_CHECK(size(int4_groups_of(n, group)) <= scales.size());
  FORETOKEN_CHECK(zeros.empty() || zeros.size() == scales.size());
  const auto code = [&](std::int64_t i) { return i < n ? unsigned{codes[size(i)]} : 8u; };
  const std::int64_t n_codes = int4_groups_of(n, group) * group;
  for (std::int64_t i = 0; i < n_codes; i += 8)
    for (std::int64_t j = 0; j < 4; ++j)
      to[i / 2 + j] = static_cast<std::byte>(code(i + j) | code(i + j + 4) << 4u);
  const auto used = scales.first(size(int4_groups_of(n, group)));
  const float unit = unit_for(8 * std::fabs(extreme_of(used))), inverse_unit = 1.0f / unit;
  std::byte* halves = to + int4_code_bytes(n, group);
  for (const float scale : used) {
    const std::uint16_t half = f32_to_f16(scale * inverse_unit);
    std::memcpy(halves, &half, sizeof half);
    halves += sizeof half;
  }
  if (!zeros.empty()) std::memcpy(halves, zeros.data(), used.size());
  return unit;
}

std::optional<float> quantise_row_to_int4(std::span<const float> row,
                                          std::int64_t group,
                                          Int4Kind kind,
                                          std::byte* to) {
  std::vector<std::uint8_t> codes(row.size());
  std::vector<float> scales(size(int4_groups_of(static_cast<std::int64_t>(row.size()), group)));
  if (!quantise_groups(row, {.group = group, .kind = kind}, codes, scales)) return std::nullopt;
  const std::vector<std::uint8_t> eights(kind == Int4Kind::kZeroPoints ? scales.size() : 0, 8);
  return write_int4_row(codes, scales, eights, group, to);
}

void pack_int4_words(std::span<const std::uint8_t> codes, std::span<std::byte> words) {
  FORETOKEN_CHECK(words.size() == (codes.size() + 7) / 8 * 4);
  std::ranges::fill(words, std::byte{0});
  for (std::size_t i = 0; i < codes.size(); ++i)
    words[i / 2] |= static_cast<std::byte>(unsigned{codes[i]} << (i % 2 * 4));
}

void unpack_int4_words(std::span<const std::byte> words, std::span<std::uint8_t> codes) {
  FORETOKEN_CHECK(words.size() * 2 >= codes.size());
  for (std::size_t i = 0; i < codes.size(); ++i)
    codes[i] =
        static_cast<std::uint8_t>(std::to_integer<unsigned>(words[i / 2]) >> (i % 2 * 4) & 15u);
}

void dequantise_int4(std::span<const std::uint8_t> codes,
                     std::int64_t begin,
                     const Int4RowGroups& groups,
                     std::span<float> weights) {
  const Int4Table* table = int4_table(groups.kind);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const std::size_t column = size(begin) + i;
    const std::size_t group =
        groups.of_column.empty() ? column / size(groups.size) : size(groups.of_column[column]);
    const int value = table != nullptr
                          ? (*table)[codes[i]]
                          : codes[i] - (groups.zeros.empty() ? 8 : groups.zeros[group]);
    weights[i] = static_cast<float>(value) * groups.scales[group];
  }
}

}  // namespace foretoken
