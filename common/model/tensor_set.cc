#include "common/model/tensor_set.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <set>
#include <vector>

#include "common/base/check.h"
#include "common/model/convert.h"
#include "common/model/families.h"
#include "common/model/int4.h"
#include "common/model/kv_scales.h"
#include "common/model/quantization.h"

namespace foretoken {

namespace {

constexpr std::array kFloats{TensorType::kF32, TensorType::kBf16, TensorType::kF16};

std::string packed_name(std::string_view weight) { return std::string(weight) + "_packed"; }

// The embedding is looked up, not multiplied: it is never stored in eight bits.
bool is_stored_quantised(const ModelConfig& config,
                         const Checkpoint& checkpoint,
                         const ExpectedTensor& tensor) {
  if (!config.quantized || tensor.shape.size() != 2 || tensor.name == names::kEmbedding)
    return false;
  if (checkpoint.contains(tensor.name))
    return checkpoint.at(tensor.name).info->type == tensor_type(*config.quantized);
  return config.quantized == DType::kI8 && checkpoint.contains(packed_name(tensor.name));
}

// Packed codes hide how many columns there are: where the two numbers are written beside them, they
// must be those of the config.
void check_shape_beside(const Checkpoint& checkpoint, const ExpectedTensor& tensor) {
  const std::string name = tensor.name + "_shape";
  if (!checkpoint.contains(name)) return;
  const Checkpoint::Tensor found = checkpoint.get(
      name, std::array{TensorType::kI64, TensorType::kI32}, std::array{std::int64_t{2}});
  std::array<std::int64_t, 2> shape{};
  if (found.info->type == TensorType::kI64) {
    std::memcpy(shape.data(), found.bytes.data(), sizeof shape);
  } else {
    std::array<std::int32_t, 2> narrow{};
    std::memcpy(narrow.data(), found.bytes.data(), sizeof narrow);
    std::ranges::copy(narrow, shape.begin());
  }
  if (std::ranges::equal(shape, tensor.shape)) return;
  throw FatalError(ErrorCode::kMalformed, found.file->path().string() + ": tensor " + name +
                                              " says " + shape_text(shape) +
                                              "; the config implies " + shape_text(tensor.shape));
}

// Codes of the shape expected, and their scales: one, or one per row. Notes the names that are
// used.
void check_quantised(const Checkpoint& checkpoint,
                     const ExpectedTensor& tensor,
                     std::set<std::string, std::less<>>& expected) {
  const std::int64_t n_out = tensor.shape[0], n_in = tensor.shape[1];
  if (checkpoint.contains(tensor.name)) {
    checkpoint.get(tensor.name, std::array{checkpoint.at(tensor.name).info->type}, tensor.shape);
    expected.insert(tensor.name);
  } else {
    const std::string name = packed_name(tensor.name);
    checkpoint.get(name, std::array{TensorType::kI32}, std::array{n_out, (n_in + 3) / 4});
    check_shape_beside(checkpoint, tensor);
    expected.insert({name, tensor.name + "_shape"});
  }
  const std::string name = scale_name(tensor.name);
  expected.insert(name);
  if (checkpoint.contains(name)) {
    const std::vector<std::int64_t>& shape = checkpoint.at(name).info->shape;
    for (const std::vector<std::int64_t>& one : {std::vector<std::int64_t>{}, {1}, {n_out}})
      if (shape == one) return void(checkpoint.get(name, kFloats, one));
  }
  checkpoint.get(name, kFloats, std::array{n_out, std::int64_t{1}});
}

std::string file_of(const Checkpoint& checkpoint, const std::string& name) {
  return stored_as(checkpoint, name).tensor.file->path().string();
}

// Matrices that share their input are multiplied as one.
std::optional<std::string> stack_not_alike(const ModelConfig& config,
                                           const Checkpoint& checkpoint) {
  static constexpr std::pair<std::string_view, std::string_view> kNeighbours[] = {
      {"self_attn.q_proj", "self_attn.k_proj"},
      {"self_attn.q_proj", "self_attn.v_proj"},
      {"mlp.gate_proj", "mlp.up_proj"}};
  for (std::int32_t layer = 0; layer < config.n_layers; ++layer) {
    for (const auto& [first, second] : kNeighbours) {
      const std::string one = names::layer(layer, first), other = names::layer(layer, second);
      const DType type = stored_as(checkpoint, one + ".weight").dtype;
      const DType other_type = stored_as(checkpoint, other + ".weight").dtype;
      if (is_quantised(type) == is_quantised(other_type)) continue;
      return file_of(checkpoint, other + ".weight") + ": " + one + " is stored as " +
             dtype_name(type) + " and " + other + " as " + dtype_name(other_type) +
             ": matrices that share their input must be quantised alike; model.dtype = " +
             "\"bfloat16\" or \"int8\" makes them so";
    }
  }
  return std::nullopt;
}

// Files made by older tools repeat the embedding as the head.
bool has_own_head(const Checkpoint& checkpoint) {
  const std::string head_name(names::kHead), embedding_name(names::kEmbedding);
  if (!checkpoint.contains(head_name) || !checkpoint.contains(embedding_name)) return false;
  const Checkpoint::Tensor head = checkpoint.at(head_name),
                           embedding = checkpoint.at(embedding_name);
  return head.info->type != embedding.info->type || head.info->shape != embedding.info->shape ||
         !std::ranges::equal(head.bytes, embedding.bytes);
}

}  // namespace

void check_tensor_set(ModelConfig& config,
                      const Checkpoint& checkpoint,
                      const std::filesystem::path& folder) {
  if (config.tie_word_embeddings && has_own_head(checkpoint)) config.tie_word_embeddings = false;
  std::set<std::string, std::less<>> expected;
  for (ExpectedTensor& tensor : expected_tensors(config)) {
    if (is_stored_quantised(config, checkpoint, tensor)) {
      check_quantised(checkpoint, tensor, expected);
      continue;
    }
    if (tensor.name == names::kHead && !checkpoint.contains(tensor.name)) {
      throw FatalError(ErrorCode::kMalformed,
                       folder.string() + ": no tensor lm_head.weight, though config.json does " +
                           "not say tie_word_embeddings: true");
    }
    checkpoint.get(tensor.name, kFloats, tensor.shape);
    expected.insert(std::move(tensor.name));
  }
  for (std::string& name : kv_scale_names(config)) expected.insert(std::move(name));
  // A tensor we would not use, a bias say, means that the file computes something else than we
  // would.
  for (const std::string& name : checkpoint.names()) {
    if (expected.contains(name) || is_ignorable(name, config)) continue;
    if (config.quantized && is_activation_scale(name)) continue;
    throw FatalError(ErrorCode::kUnsupportedModel,
                     checkpoint.at(name).file->path().string() + ": tensor " + name +
                         " has no place in a " + config.architecture + " with this config.json");
  }
}

StoredTensor stored_as(const Checkpoint& checkpoint, const std::string& name) {
  if (!checkpoint.contains(name)) return {checkpoint.at(packed_name(name)), DType::kI8, true};
  const Checkpoint::Tensor tensor = checkpoint.at(name);
  return {tensor, *dtype_of(tensor.info->type), false};
}

std::optional<std::string> what_is_not_finite(const Checkpoint::Tensor& tensor) {
  if (tensor.info->type == TensorType::kI32) return std::nullopt;  // packed codes
  const DType dtype = *dtype_of(tensor.info->type);
  if (all_finite(dtype, tensor.bytes)) return std::nullopt;
  const auto found = first_not_finite(dtype, tensor.bytes);
  FORETOKEN_CHECK(found.has_value(), "the quick check and the search disagree");
  // Rows of matrices, as one would look for it with other tools.
  std::string place = "[" + std::to_string(found->index) + "]";
  if (tensor.info->shape.size() == 2) {
    const auto n_columns = static_cast<std::size_t>(tensor.info->shape[1]);
    place = "[" + std::to_string(found->index / n_columns) + ", " +
            std::to_string(found->index % n_columns) + "]";
  }
  return tensor.file->path().string() + ": tensor " + tensor.info->name + " has " +
         (std::isnan(found->value) ? "a NaN" : "an infinity") + " at " + place +
         ": values that are not finite numbers";
}

std::vector<float> scales_of(const Checkpoint& checkpoint,
                             const std::string& name,
                             std::int64_t n_out) {
  const Checkpoint::Tensor tensor = checkpoint.at(scale_name(name));
  std::vector<float> scales(tensor.info->n_elements());
  widen(*dtype_of(tensor.info->type), tensor.bytes, scales);
  if (scales.size() == 1) scales.assign(static_cast<std::size_t>(n_out), scales.front());
  return scales;
}

std::optional<std::string> what_is_wrong_with_scales(const Checkpoint& checkpoint,
                                                     const std::string& name,
                                                     std::span<const std::int64_t> shape) {
  const StoredTensor stored = stored_as(checkpoint, name);
  const Checkpoint::Tensor scale = checkpoint.at(scale_name(name));
  if (auto sentence = what_is_not_finite(scale)) return sentence;
  const std::vector<float> scales = scales_of(checkpoint, name, shape[0]);
  const auto negative = std::ranges::find_if(scales, [](float s) { return s < 0; });
  if (negative != scales.end()) {
    return scale.file->path().string() + ": tensor " + scale.info->name +
           " has a negative number at [" + std::to_string(negative - scales.begin()) +
           "]: a scale is zero or more";
  }
  if (std::ranges::max(scales) <= kSafeScale) return std::nullopt;
  std::vector<std::byte> unpacked;
  std::span<const std::byte> codes = stored.tensor.bytes;
  if (stored.packed) codes = unpacked = unpack_int8(codes, shape[0], shape[1]);
  const auto row = first_row_beyond_float(stored.dtype, codes, scales, shape[1]);
  if (!row) return std::nullopt;
  return stored.tensor.file->path().string() + ": tensor " + name + " is infinite in row " +
         std::to_string(*row) + ": its codes times their scale are beyond the range of float32";
}

std::optional<std::string> rows_too_long(const std::string& file,
                                         const std::string& name,
                                         DType held,
                                         std::int64_t n_in) {
  if (held != DType::kI8 || n_in <= kMaxInInt8) return std::nullopt;
  return file + ": tensor " + name + " has rows of " + std::to_string(n_in) +
         " elements; in int8 they may have at most " + std::to_string(kMaxInInt8) +
         ": use bfloat16";
}

std::optional<std::string> why_not_held(const ModelConfig& config,
                                        const Checkpoint& checkpoint,
                                        WeightDType asked) {
  const DType floats = float_dtype(checkpoint);
  for (const ExpectedTensor& tensor : expected_tensors(config)) {
    if (tensor.shape.size() != 2) continue;
    const DType held =
        held_dtype(tensor.name, stored_as(checkpoint, tensor.name).dtype, asked, floats);
    if (auto sentence =
            rows_too_long(file_of(checkpoint, tensor.name), tensor.name, held, tensor.shape[1]))
      return sentence;
  }
  return asked == WeightDType::kAuto ? stack_not_alike(config, checkpoint) : std::nullopt;
}

DType float_dtype(const Checkpoint& checkpoint) {
  const DType first = stored_as(checkpoint, names::layer(0, "self_attn.q_proj.weight")).dtype;
  return is_quantised(first) ? stored_as(checkpoint, std::string(names::kEmbedding)).dtype : first;
}

DType held_dtype(std::string_view name, DType stored, WeightDType asked, DType float_dtype) {
  switch (asked) {
    case WeightDType::kAuto:
      return is_quantised(stored) ? stored : float_dtype;
    case WeightDType::kF32:
      return DType::kF32;
    case WeightDType::kBf16:
      return DType::kBf16;
    case WeightDType::kF16:
      return DType::kF16;
    case WeightDType::kI8:
      return DType::kI8;
    case WeightDType::kI4:
      return is_held_in_int4(name) ? DType::kI4 : DType::kI8;
  }
  FORETOKEN_CHECK(false, "unknown dtype");
}

DType default_kv_dtype(DType weights) { return is_quantised(weights) ? DType::kBf16 : weights; }

}  // namespace foretoken
