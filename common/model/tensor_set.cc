#include "common/model/tensor_set.h"

#include <array>
#include <cmath>
#include <set>
#include <vector>

#include "common/base/check.h"
#include "common/model/convert.h"
#include "common/model/families.h"
#include "common/model/quantization.h"

namespace foretoken {

namespace {

constexpr std::array kFloats{TensorType::kF32, TensorType::kBf16, TensorType::kF16};

std::string packed_name(std::string_view weight) { return std::string(weight) + "_packed"; }

// The embedding is looked up, not multiplied: nobody stores it in eight bits.
bool is_stored_quantised(const ModelConfig& config,
                         const Checkpoint& checkpoint,
                         const ExpectedTensor& tensor) {
  if (!config.quantized || tensor.shape.size() != 2 || tensor.name == names::kEmbedding)
    return false;
  if (checkpoint.contains(tensor.name))
    return checkpoint.at(tensor.name).info->type == tensor_type(*config.quantized);
  return config.quantized == DType::kI8 && checkpoint.contains(packed_name(tensor.name));
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

// Matrices that share their input are multiplied as one.
void check_stacks_alike(const ModelConfig& config, const Checkpoint& checkpoint) {
  if (!config.quantized) return;
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
      throw FatalError(ErrorCode::kUnsupportedModel,
                       one + " is stored as " + dtype_name(type) + " and " + other + " as " +
                           dtype_name(other_type) +
                           ": matrices that share their input must be quantised alike");
    }
  }
}

}  // namespace

void check_tensor_set(const ModelConfig& config,
                      const Checkpoint& checkpoint,
                      const std::filesystem::path& folder) {
  std::set<std::string, std::less<>> expected;
  for (ExpectedTensor& tensor : expected_tensors(config)) {
    if (tensor.name == names::kHead && !checkpoint.contains(tensor.name)) {
      throw FatalError(ErrorCode::kMalformed,
                       folder.string() + ": no tensor lm_head.weight, though config.json does " +
                           "not say tie_word_embeddings: true");
    }
    if (is_stored_quantised(config, checkpoint, tensor)) {
      check_quantised(checkpoint, tensor, expected);
      continue;
    }
    checkpoint.get(tensor.name, kFloats, tensor.shape);
    expected.insert(std::move(tensor.name));
  }
  check_stacks_alike(config, checkpoint);
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
  FORETOKEN_CHECK(found.has_value(), "the quick question and the search disagree");
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

DType float_dtype(const Checkpoint& checkpoint) {
  const DType first = stored_as(checkpoint, names::layer(0, "self_attn.q_proj.weight")).dtype;
  return is_quantised(first) ? stored_as(checkpoint, std::string(names::kEmbedding)).dtype : first;
}

DType held_dtype(DType stored, WeightDType asked, DType float_dtype) {
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
  }
  FORETOKEN_CHECK(false, "unknown dtype");
}

DType default_kv_dtype(DType weights) { return is_quantised(weights) ? DType::kBf16 : weights; }

}  // namespace foretoken
