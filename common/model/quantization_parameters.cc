#include "common/model/quantization_parameters.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "common/model/convert.h"
#include "common/model/int4_words.h"
#include "common/model/quantization.h"

namespace foretoken {
namespace {

constexpr int kMostCode = 15;
// Of exponents of eight bits (E8M0): 2^(byte - 127). The largest is 2^116, below kSafeScale.
constexpr int kExponentBias = 127, kMostExponent = 243, kNanExponent = 255;

bool has_own_layout(const ModelConfig& config, const StoredTensor& stored) {
  return stored.dtype == DType::kI4 && is_transposed(config.quantized.int4_layout);
}

// As the tensor has them.
std::vector<float> stored_scales(const Checkpoint& checkpoint, const StoredTensor& stored) {
  const Checkpoint::Tensor tensor = checkpoint.at(stored.scales);
  std::vector<float> scales(tensor.info->n_elements());
  if (tensor.info->type == TensorType::kU8) {  // exponents, halved as kE2m1Table is doubled
    std::ranges::transform(tensor.bytes, scales.begin(), [](std::byte exponent) {
      return std::ldexp(0.5f, std::to_integer<int>(exponent) - kExponentBias);
    });
    return scales;
  }
  widen(*dtype_of(tensor.info->type), tensor.bytes, scales);
  return scales;
}

std::vector<std::int32_t> stored_groups(const Checkpoint& checkpoint, const StoredTensor& stored) {
  if (stored.group_of.empty()) return {};
  const Checkpoint::Tensor tensor = checkpoint.at(stored.group_of);
  std::vector<std::int32_t> groups(tensor.info->n_elements());
  std::memcpy(groups.data(), tensor.bytes.data(), tensor.bytes.size());
  return groups;
}

// [n_out, n_groups], by rows.
std::vector<std::uint8_t> stored_zeros(const ModelConfig& config,
                                       const Checkpoint& checkpoint,
                                       const StoredTensor& stored,
                                       std::int64_t n_out) {
  if (stored.dtype != DType::kI4 || stored.zeros.empty()) return {};
  const Checkpoint::Tensor tensor = checkpoint.at(stored.zeros);
  if (tensor.info->type != TensorType::kI8) {
    const Int4Layout layout = config.quantized.int4_layout;
    return zeros_of_words(layout, tensor.bytes, n_out,
                          tensor.info->shape[is_transposed(layout) ? 0 : 1]);
  }
  std::vector<std::uint8_t> zeros;  // bytes are less 8, as codes in bytes are
  for (const std::byte byte : tensor.bytes)
    zeros.push_back(static_cast<std::uint8_t>(std::to_integer<unsigned>(byte) + 8u));
  return zeros;
}

std::string place(const Checkpoint::Tensor& tensor, std::size_t at) {
  const auto n = static_cast<std::size_t>(tensor.info->shape.back());
  return "[" + std::to_string(at / n) + ", " + std::to_string(at % n) + "]";
}

std::string named(const Checkpoint::Tensor& tensor) {
  return tensor.file->path().string() + ": tensor " + tensor.info->name;
}

// Of either sign: a group's value of largest magnitude may be the code -8 or, the scale being
// negative, as well a positive number.
std::optional<std::string> scale_beyond_int4(const Checkpoint::Tensor& tensor,
                                             std::span<const float> scales) {
  const auto magnitude = [](float s) { return std::fabs(s); };
  const auto largest = std::ranges::max_element(scales, {}, magnitude);
  if (magnitude(*largest) <= kSafeScale) return std::nullopt;
  char value[32];
  std::snprintf(value, sizeof value, "%g", static_cast<double>(*largest));
  return named(tensor) + " has " + value + " at " +
         place(tensor, static_cast<std::size_t>(largest - scales.begin())) +
         ": scales of 4-bit weights may be at most 1e35";
}

std::optional<std::string> wrong_exponents(const Checkpoint::Tensor& tensor) {
  if (tensor.info->type != TensorType::kU8) return std::nullopt;
  const auto largest = std::ranges::max_element(tensor.bytes);
  const int exponent = std::to_integer<int>(*largest);
  if (exponent <= kMostExponent) return std::nullopt;
  const std::string sentence =
      named(tensor) + " has " + std::to_string(exponent) + " at " +
      place(tensor, static_cast<std::size_t>(largest - tensor.bytes.begin()));
  if (exponent == kNanExponent)
    return sentence + ", a NaN: exponents of 4-bit floats may be at most 243";
  return sentence + ", the scale 2^" + std::to_string(exponent - kExponentBias) +
         ": exponents of 4-bit floats may be at most 243 (2^116)";
}

// Zero points that cannot be, or that the config says are not there.
std::optional<std::string> wrong_zeros(const ModelConfig& config,
                                       const Checkpoint& checkpoint,
                                       const StoredTensor& stored,
                                       std::int64_t n_out) {
  const std::vector<std::uint8_t> zeros = stored_zeros(config, checkpoint, stored, n_out);
  const bool all_8 = config.quantized.int4_kind == Int4Kind::kOffset;
  const auto wrong = std::ranges::find_if(
      zeros, [&](std::uint8_t zero) { return zero > kMostCode || (all_8 && zero != 8); });
  if (wrong == zeros.end()) return std::nullopt;
  const auto at = static_cast<std::size_t>(wrong - zeros.begin()),
             n_groups = zeros.size() / static_cast<std::size_t>(n_out);
  std::string sentence = named(checkpoint.at(stored.zeros)) + " has a zero point of " +
                         std::to_string(static_cast<std::int8_t>(*wrong)) + " for output " +
                         std::to_string(at / n_groups) + " in group " +
                         std::to_string(at % n_groups);
  if (!all_8) return sentence + ": with 8 added, as codes have it; it is 0 to 15";
  return sentence + ": sym is true, and then all are 8";
}

std::optional<std::string> wrong_groups(const Checkpoint& checkpoint,
                                        const StoredTensor& stored,
                                        std::int64_t n_groups) {
  const std::vector<std::int32_t> groups = stored_groups(checkpoint, stored);
  const auto wrong =
      std::ranges::find_if(groups, [&](std::int32_t g) { return g < 0 || g >= n_groups; });
  if (wrong == groups.end()) return std::nullopt;
  return named(checkpoint.at(stored.group_of)) + " has " + std::to_string(*wrong) + " at [" +
         std::to_string(wrong - groups.begin()) + "]: there are groups 0 to " +
         std::to_string(n_groups - 1);
}

std::optional<std::string> wrong_int4(const ModelConfig& config,
                                      const Checkpoint& checkpoint,
                                      const StoredTensor& stored,
                                      const ExpectedTensor& tensor) {
  if (auto sentence = wrong_exponents(checkpoint.at(stored.scales))) return sentence;
  const std::vector<float> scales = stored_scales(checkpoint, stored);
  if (auto sentence = scale_beyond_int4(checkpoint.at(stored.scales), scales)) return sentence;
  if (auto sentence = wrong_zeros(config, checkpoint, stored, tensor.shape[0])) return sentence;
  return wrong_groups(checkpoint, stored,
                      static_cast<std::int64_t>(scales.size()) / tensor.shape[0]);
}

}  // namespace

std::vector<std::int32_t> column_groups(const ModelConfig& config,
                                        const Checkpoint& checkpoint,
                                        const StoredTensor& stored) {
  std::vector<std::int32_t> groups = stored_groups(checkpoint, stored);
  if (is_in_order(groups, config.quantized.int4_group)) groups.clear();
  return groups;
}

QuantizationParameters quantization_parameters(const ModelConfig& config,
                                               const Checkpoint& checkpoint,
                                               const ExpectedTensor& tensor) {
  const std::int64_t n_out = tensor.shape[0];
  const StoredTensor stored = stored_as(checkpoint, tensor);
  QuantizationParameters parameters{.scales = stored_scales(checkpoint, stored)};
  if (parameters.scales.size() == 1)
    parameters.scales.assign(static_cast<std::size_t>(n_out), parameters.scales.front());
  if (has_own_layout(config, stored))
    parameters.scales = transposed(
        parameters.scales, static_cast<std::int64_t>(parameters.scales.size()) / n_out, n_out);
  if (config.quantized.int4_kind == Int4Kind::kZeroPoints)
    parameters.zeros = stored_zeros(config, checkpoint, stored, n_out);
  parameters.group_of = column_groups(config, checkpoint, stored);
  return parameters;
}

std::optional<std::string> what_is_wrong_in_parameters(const ModelConfig& config,
                                                       const Checkpoint& checkpoint,
                                                       const ExpectedTensor& tensor) {
  const std::int64_t n_in = tensor.shape[1];
  const StoredTensor stored = stored_as(checkpoint, tensor);
  const Checkpoint::Tensor scale = checkpoint.at(stored.scales);
  if (auto sentence = what_is_not_finite(scale)) return sentence;
  if (stored.dtype == DType::kI4) return wrong_int4(config, checkpoint, stored, tensor);
  const std::vector<float> scales = quantization_parameters(config, checkpoint, tensor).scales;
  const auto negative = std::ranges::find_if(scales, [](float s) { return s < 0; });
  if (negative != scales.end()) {
    return named(scale) + " has a negative number at [" +
           std::to_string(negative - scales.begin()) + "]: a scale is zero or more";
  }
  if (std::ranges::max(scales) <= kSafeScale) return std::nullopt;
  std::vector<std::byte> unpacked;
  std::span<const std::byte> codes = stored.tensor.bytes;
  if (stored.packed) codes = unpacked = unpack_int8(codes, tensor.shape[0], n_in);
  const auto row = first_row_beyond_float(stored.dtype, codes, scales, n_in);
  if (!row) return std::nullopt;
  return stored.tensor.file->path().string() + ": tensor " + tensor.name + " is infinite in row " +
         std::to_string(*row) + ": its codes times their scale are beyond the range of float32";
}

}  // namespace foretoken
