#include "common/model/convert.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/base/check.h"
#include "kernels/include/numerics.h"

namespace foretoken {
namespace {

std::uint16_t load16(const std::byte* from) {
  std::uint16_t half;
  std::memcpy(&half, from, sizeof half);
  return half;
}

}  // namespace

void widen(DType dtype, std::span<const std::byte> bytes, std::span<float> out) {
  FORETOKEN_CHECK(bytes.size() == out.size() * size_bytes(dtype));
  switch (dtype) {
    case DType::kF32:
      if (!out.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
      return;
    case DType::kBf16:
      for (std::size_t i = 0; i < out.size(); ++i)
        out[i] = bf16_to_f32(load16(bytes.data() + 2 * i));
      return;
    case DType::kF16:
      for (std::size_t i = 0; i < out.size(); ++i)
        out[i] = f16_to_f32(load16(bytes.data() + 2 * i));
      return;
    default:
      FORETOKEN_CHECK(false, "not a float type");
  }
}

bool narrow(std::span<const float> values, DType dtype, std::span<std::byte> out) {
  FORETOKEN_CHECK(out.size() == values.size() * size_bytes(dtype));
  if (dtype == DType::kF32) {
    if (!values.empty()) std::memcpy(out.data(), values.data(), out.size());
    return true;
  }
  FORETOKEN_CHECK(dtype == DType::kBf16 || dtype == DType::kF16);
  bool fits = true;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t half =
        dtype == DType::kBf16 ? f32_to_bf16(values[i]) : f32_to_f16(values[i]);
    const std::uint16_t infinity = dtype == DType::kBf16 ? 0x7f80 : 0x7c00;
    fits = fits && ((half & 0x7fff) != infinity || std::isinf(values[i]));
    std::memcpy(out.data() + 2 * i, &half, sizeof half);
  }
  return fits;
}

// Eight bytes at a time: adding the lowest exponent bit to the exponent field overflows into the
// sign's place exactly if the field was all ones, and never into the next element.
bool all_finite(DType dtype, std::span<const std::byte> bytes) {
  std::uint64_t exponents = 0, low = 0, high = 0;
  switch (dtype) {
    case DType::kF32:
      exponents = 0x7f8000007f800000, low = 0x0080000000800000, high = 0x8000000080000000;
      break;
    case DType::kBf16:
      exponents = 0x7f807f807f807f80, low = 0x0080008000800080, high = 0x8000800080008000;
      break;
    case DType::kF16:
      exponents = 0x7c007c007c007c00, low = 0x0400040004000400, high = 0x8000800080008000;
      break;
    default:
      FORETOKEN_CHECK(false, "not a float type");
  }
  std::uint64_t found = 0;
  while (!bytes.empty()) {
    std::uint64_t word = 0;
    const std::size_t n = std::min(bytes.size(), sizeof word);
    std::memcpy(&word, bytes.data(), n);
    found |= (word & exponents) + low;
    bytes = bytes.subspan(n);
  }
  return (found & high) == 0;
}

std::optional<NotFinite> first_not_finite(DType dtype, std::span<const std::byte> bytes) {
  const std::size_t size = size_bytes(dtype);
  for (std::size_t i = 0; (i + 1) * size <= bytes.size(); ++i) {
    float value = 0;
    widen(dtype, bytes.subspan(i * size, size), std::span(&value, 1));
    if (!std::isfinite(value)) return NotFinite{i, value};
  }
  return std::nullopt;
}

bool quantise_rows(DType dtype,
                   std::span<const std::byte> bytes,
                   std::int64_t n_out,
                   std::int64_t n_in,
                   Int8Matrix& out) {
  const auto rows = static_cast<std::size_t>(n_out), columns = static_cast<std::size_t>(n_in);
  const std::size_t row_bytes = columns * size_bytes(dtype);
  out.data.resize(rows * columns);
  out.scales.resize(rows);
  std::vector<float> row(columns);
  for (std::size_t r = 0; r < rows; ++r) {
    widen(dtype, bytes.subspan(r * row_bytes, row_bytes), row);
    float largest = 0;
    bool finite = true;
    for (float value : row) {
      finite = finite && std::isfinite(value);
      largest = std::max(largest, std::fabs(value));
    }
    if (!finite) return false;
    // A row of zeros, or of numbers whose 127th part is zero, stays zero under any scale.
    const float scale = largest >= 1e-35f ? largest / 127.0f : 1.0f;
    out.scales[r] = scale;
    for (std::size_t c = 0; c < columns; ++c) {
      const float rounded =
          (row[c] / scale + 12582912.0f) - 12582912.0f;  // to nearest even: 1.5 * 2^23
      out.data[r * columns + c] = static_cast<std::int8_t>(std::clamp(rounded, -127.0f, 127.0f));
    }
  }
  return true;
}

}  // namespace foretoken
