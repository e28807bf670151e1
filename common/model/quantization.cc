#include "common/model/quantization.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "common/base/check.h"
#include "common/model/convert.h"
#include "common/model/int4.h"
#include "kernels/include/numerics.h"

namespace foretoken {
namespace {

constexpr float kLargestInt8 = 127.0f;
constexpr float kLargestE4m3 = 448.0f;

float to_int8(float x) {
  const float rounded = (x + 12582912.0f) - 12582912.0f;  // to nearest even: 1.5 * 2^23
  return std::clamp(rounded, -kLargestInt8, kLargestInt8);
}

std::byte code_of(float x, DType to) {
  if (to == DType::kI8) return static_cast<std::byte>(static_cast<std::int8_t>(to_int8(x)));
  return static_cast<std::byte>(f32_to_e4m3(x));
}

// The least number of a float type that is not below a positive one.
float rounded_up(float x, DType type) {
  if (type == DType::kF32) return x;
  const bool is_bf16 = type == DType::kBf16;
  const auto value = [&](std::uint16_t bits) {
    return is_bf16 ? bf16_to_f32(bits) : f16_to_f32(bits);
  };
  std::uint16_t bits = is_bf16 ? f32_to_bf16(x) : f32_to_f16(x);
  if (value(bits) < x) ++bits;  // positive numbers are in the order of their bits
  return value(bits);
}

}  // namespace

std::string scale_name(std::string_view weight) { return std::string(weight) + "_scale"; }
std::string packed_name(std::string_view weight) { return std::string(weight) + "_packed"; }
std::string zero_point_name(std::string_view weight) { return std::string(weight) + "_zero_point"; }

bool is_activation_scale(std::string_view name) {
  static constexpr std::array<std::string_view, 5> kEnds{".input_scale", ".output_scale",
                                                         ".k_scale", ".v_scale", ".q_scale"};
  return std::ranges::any_of(kEnds, [&](std::string_view end) { return name.ends_with(end); });
}

std::optional<float> quantise_row(std::span<const float> row,
                                  DType to,
                                  std::byte* codes,
                                  DType scale_type) {
  FORETOKEN_CHECK(to == DType::kI8 || to == DType::kF8E4M3);
  float largest = 0;
  bool finite = true;
  for (float value : row) {
    finite = finite && std::isfinite(value);
    largest = std::max(largest, std::fabs(value));
  }
  if (!finite) return std::nullopt;
  const float most = to == DType::kI8 ? kLargestInt8 : kLargestE4m3;
  // A row of zeros, or of numbers so small that their share is zero, stays zero under any scale.
  const float scale = largest >= 1e-35f ? rounded_up(largest / most, scale_type) : 1.0f;
  for (std::size_t i = 0; i < row.size(); ++i) codes[i] = code_of(row[i] / scale, to);
  return scale;
}

bool quantise_rows(DType stored,
                   std::span<const std::byte> bytes,
                   std::int64_t n_out,
                   std::int64_t n_in,
                   DType to,
                   QuantisedMatrix& out) {
  const auto rows = static_cast<std::size_t>(n_out), columns = static_cast<std::size_t>(n_in);
  const std::size_t row_bytes = columns * size_bytes(stored);
  out.codes.resize(rows * columns);
  out.scales.resize(rows);
  // Others read scales of fp8 in float32, and those of int8 in the type of the other weights.
  const DType scale_type = to == DType::kI8 ? stored : DType::kF32;
  std::vector<float> row(columns);
  for (std::size_t r = 0; r < rows; ++r) {
    widen(stored, bytes.subspan(r * row_bytes, row_bytes), row);
    const auto scale = quantise_row(row, to, out.codes.data() + r * columns, scale_type);
    if (!scale) return false;
    out.scales[r] = *scale;
  }
  return true;
}

bool quantise_to_int4_words(const Int4Search& search,
                            std::span<const std::byte> bytes,
                            std::int64_t n_out,
                            std::int64_t n_in,
                            QuantisedMatrix& out) {
  const DType stored = search.scale_type;
  const auto rows = static_cast<std::size_t>(n_out), columns = static_cast<std::size_t>(n_in);
  const std::size_t row_bytes = columns * size_bytes(stored), word_bytes = (columns + 7) / 8 * 4,
                    n_groups = static_cast<std::size_t>(int4_groups_of(n_in, search.group));
  out.codes.resize(rows * word_bytes);
  out.scales.resize(rows * n_groups);
  std::vector<float> row(columns);
  std::vector<std::uint8_t> codes(columns);
  for (std::size_t r = 0; r < rows; ++r) {
    widen(stored, bytes.subspan(r * row_bytes, row_bytes), row);
    if (!quantise_groups(row, search, codes, std::span(out.scales).subspan(r * n_groups, n_groups)))
      return false;
    pack_int4_words(codes, std::span(out.codes).subspan(r * word_bytes, word_bytes));
  }
  return true;
}

std::vector<std::byte> pack_int8(std::span<const std::byte> codes,
                                 std::int64_t n_out,
                                 std::int64_t n_in) {
  const auto rows = static_cast<std::size_t>(n_out), columns = static_cast<std::size_t>(n_in);
  const std::size_t stride = (columns + 3) / 4 * 4;
  FORETOKEN_CHECK(codes.size() == rows * columns);
  std::vector<std::byte> words(rows * stride);
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < columns; ++c)
      words[r * stride + c] = unpacked_int8(codes[r * columns + c]);  // its own inverse
  return words;
}

std::vector<std::byte> unpack_int8(std::span<const std::byte> words,
                                   std::int64_t n_out,
                                   std::int64_t n_in) {
  const auto rows = static_cast<std::size_t>(n_out), columns = static_cast<std::size_t>(n_in);
  const std::size_t stride = (columns + 3) / 4 * 4;
  FORETOKEN_CHECK(words.size() == rows * stride);
  std::vector<std::byte> codes(rows * columns);
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < columns; ++c)
      codes[r * columns + c] = unpacked_int8(words[r * stride + c]);
  return codes;
}

std::optional<std::size_t> first_row_beyond_float(DType stored,
                                                  std::span<const std::byte> codes,
                                                  std::span<const float> scales,
                                                  std::int64_t n_in) {
  const auto columns = static_cast<std::size_t>(n_in);
  std::vector<float> row(columns);
  for (std::size_t r = 0; r < scales.size(); ++r) {
    if (scales[r] <= kSafeScale) continue;
    dequantise_rows(stored, codes.subspan(r * columns, columns), scales.subspan(r, 1), n_in, row);
    if (!std::ranges::all_of(row, [](float value) { return std::isfinite(value); })) return r;
  }
  return std::nullopt;
}

void dequantise_rows(DType stored,
                     std::span<const std::byte> codes,
                     std::span<const float> scales,
                     std::int64_t n_in,
                     std::span<float> out) {
  FORETOKEN_CHECK(stored == DType::kI8 || stored == DType::kF8E4M3);
  FORETOKEN_CHECK(out.size() == codes.size());
  const auto columns = static_cast<std::size_t>(n_in);
  FORETOKEN_CHECK(scales.size() * columns == codes.size());
  widen(stored, codes, out);
  for (std::size_t r = 0; r < scales.size(); ++r)
    for (std::size_t i = r * columns; i < (r + 1) * columns; ++i) out[i] *= scales[r];
}

}  // namespace foretoken
