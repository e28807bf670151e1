#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/base/check.h"
#include "kernels/include/numerics.h"
#include "kernels/ref/ref.h"

namespace foretoken::ref {
namespace {

double int4_element(const LinearSource& source, std::int64_t row, std::int64_t k) {
  const std::byte* codes = static_cast<const std::byte*>(source.data) +
                           row * row_bytes(DType::kI4, source.n_in, source.group, source.kind);
  const auto two = std::to_integer<int>(codes[k / 8 * 4 + k % 4]);
  const int code = k % 8 < 4 ? two & 15 : two >> 4;
  const std::byte* scales = codes + int4_code_bytes(source.n_in, source.group);
  std::uint16_t scale = 0;
  std::memcpy(&scale, scales + k / source.group * 2, 2);
  int value = code - 8;
  if (const Int4Table* table = int4_table(source.kind))
    value = (*table)[static_cast<std::size_t>(code)];
  if (source.kind == Int4Kind::kZeroPoints)
    value = code - std::to_integer<int>(
                       scales[int4_groups_of(source.n_in, source.group) * 2 + k / source.group]);
  return value * static_cast<double>(f16_to_f32(scale)) * static_cast<double>(source.scales[row]);
}

double element(const LinearSource& source, std::int64_t row, std::int64_t k) {
  const auto i = static_cast<std::size_t>(row * source.n_in + k);  // kI4 has its own
  const std::byte* at = static_cast<const std::byte*>(source.data) + i * size_bytes(source.dtype);
  std::uint16_t half = 0;
  float full = 0;
  switch (source.dtype) {
    case DType::kF32:
      std::memcpy(&full, at, sizeof full);
      return static_cast<double>(full);
    case DType::kBf16:
      std::memcpy(&half, at, sizeof half);
      return static_cast<double>(bf16_to_f32(half));
    case DType::kF16:
      std::memcpy(&half, at, sizeof half);
      return static_cast<double>(f16_to_f32(half));
    case DType::kI8:
      return static_cast<double>(static_cast<std::int8_t>(*at)) *
             static_cast<double>(source.scales[row]);
    case DType::kI4:
      return int4_element(source, row, k);
    case DType::kF8E4M3:
      return static_cast<double>(e4m3_to_f32(static_cast<std::uint8_t>(*at))) *
             static_cast<double>(source.scales[row]);
  }
  FORETOKEN_CHECK(false, "the oracle does not know this dtype");
  return 0;
}

double to_bf16(double x) {
  return static_cast<double>(bf16_to_f32(f32_to_bf16(static_cast<float>(x))));
}

// What lies beyond the largest half becomes it.
double to_f16(double x) {
  const double limited = std::fabs(x) > 65504 && std::isfinite(x) ? std::copysign(65504.0, x) : x;
  return static_cast<double>(f16_to_f32(f32_to_f16(static_cast<float>(limited))));
}

// Near the border between two 16-bit numbers a device may land on either.
Real round_to_half(const Real& a, double (*to_half)(double)) {
  const double value = to_half(a.value);
  const double margin = a.slack + kF32Unit * std::fabs(a.value);
  const double low = to_half(a.value - margin), high = to_half(a.value + margin);
  return {value, std::max({high - value, value - low, std::fabs(value) < kTiny ? kTiny : 0.0})};
}

// To a multiple of the group's scale, largest / 127. The scale is known to a few roundings, and
// near the border between two multiples a device may land on either.
void round_to_i8(std::span<Real> group) {
  double largest = 0, slack = 0;
  for (const Real& a : group) {
    largest = std::max(largest, std::fabs(a.value));
    slack = std::max(slack, a.slack);
  }
  if (largest == 0) return;
  const double scale = largest / 127;
  const double doubt = slack / largest + 4 * kF32Unit;  // relative, of the scale
  for (Real& a : group) {
    const double margin = a.slack / scale + doubt * std::fabs(a.value) / scale;
    const double low = std::nearbyint(a.value / scale - margin);
    const double high = std::nearbyint(a.value / scale + margin);
    const double q = std::nearbyint(a.value / scale);
    a = {q * scale, std::max(high - q, q - low) * scale + std::fabs(q) * scale * doubt};
  }
}

// What the device multiplies with: the row, perhaps rounded first.
std::vector<Real> round_input(std::span<const Real> x, InputRounding rounding) {
  std::vector<Real> y(x.begin(), x.end());
  if (rounding == InputRounding::kBf16)
    for (Real& a : y) a = round_to_half(a, to_bf16);
  if (rounding == InputRounding::kF16)
    for (Real& a : y) a = round_to_half(a, to_f16);
  const std::size_t group = rounding == InputRounding::kI8       ? 64
                            : rounding == InputRounding::kI8By32 ? 32
                                                                 : 0;
  if (group > 0)
    for (std::size_t i = 0; i < y.size(); i += group)
      round_to_i8(std::span(y).subspan(i, std::min(group, y.size() - i)));
  return y;
}

}  // namespace

Matrix::Matrix(std::span<const LinearSource> sources) {
  n_in = sources.front().n_in;
  for (const LinearSource& source : sources) {
    n_out += source.n_out;
    has_bias = has_bias || source.bias != nullptr;
    for (std::int64_t row = 0; row < source.n_out; ++row) {
      for (std::int64_t k = 0; k < n_in; ++k) weights.push_back(element(source, row, k));
      bias.push_back(source.bias != nullptr ? static_cast<double>(source.bias[row]) : 0.0);
    }
  }
}

std::vector<Real> widen(const float* x, std::int64_t n) {
  std::vector<Real> y(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = exactly(static_cast<double>(x[i]));
  return y;
}

std::vector<Real> rms_norm(std::span<const Real> x, const float* norm, float eps) {
  double sum = 0, slack = 0;
  for (const Real& a : x) {
    sum += a.value * a.value;
    slack += 2 * std::fabs(a.value) * a.slack + a.slack * a.slack;
  }
  const double n = static_cast<double>(x.size());
  const Real squares{sum, slack + (n + 4) * kF32Unit * sum};
  const Real root = square_root(squares / exactly(n) + exactly(static_cast<double>(eps)));
  const Real scale = exactly(1) / root;
  std::vector<Real> y;
  for (std::size_t i = 0; i < x.size(); ++i)
    y.push_back(x[i] * scale * exactly(static_cast<double>(norm[i])));
  return y;
}

std::vector<Real> multiply(std::span<const Real> x, const Matrix& matrix, InputRounding rounding) {
  const std::vector<Real> input = round_input(x, rounding);
  const double n = static_cast<double>(matrix.n_in);
  std::vector<Real> y;
  for (std::int64_t row = 0; row < matrix.n_out; ++row) {
    const double* w = matrix.weights.data() + row * matrix.n_in;
    double sum = 0, magnitude = 0, slack = 0;
    for (std::size_t k = 0; k < input.size(); ++k) {
      sum += input[k].value * w[k];
      magnitude += (std::fabs(input[k].value) + input[k].slack) * std::fabs(w[k]);
      slack += input[k].slack * std::fabs(w[k]);
    }
    Real result{sum, slack + (n + 4) * (kF32Unit * magnitude + kTiny)};
    if (matrix.has_bias) result = result + exactly(matrix.bias[static_cast<std::size_t>(row)]);
    y.push_back(result);
  }
  return y;
}

}  // namespace foretoken::ref
