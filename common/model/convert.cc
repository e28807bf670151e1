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
    case DType::kF8E4M3:
      for (std::size_t i = 0; i < out.size(); ++i)
        out[i] = e4m3_to_f32(static_cast<std::uint8_t>(bytes[i]));
      return;
    case DType::kI8:
      for (std::size_t i = 0; i < out.size(); ++i)
        out[i] = static_cast<float>(static_cast<std::int8_t>(bytes[i]));
      return;
    case DType::kI4:
      break;  // rows with scales inside: int4.h
  }
  FORETOKEN_CHECK(false, "unknown dtype");
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
    case DType::kF8E4M3:  // one code a sign is no number: all ones
      exponents = 0x7f7f7f7f7f7f7f7f, low = 0x0101010101010101, high = 0x8080808080808080;
      break;
    case DType::kI8:
    case DType::kI4:
      return true;
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

}  // namespace foretoken
