#include "common/model/tensor_set.h"

#include <array>
#include <cmath>
#include <set>

#include "common/base/check.h"
#include "common/model/convert.h"
#include "common/model/families.h"

namespace foretoken {

void check_tensor_set(const ModelConfig& config,
                      const Checkpoint& checkpoint,
                      const std::filesystem::path& folder) {
  static constexpr std::array kFloats{TensorType::kF32, TensorType::kBf16, TensorType::kF16};
  std::set<std::string, std::less<>> expected;
  for (ExpectedTensor& tensor : expected_tensors(config)) {
    if (tensor.name == names::kHead && !checkpoint.contains(tensor.name)) {
      throw FatalError(ErrorCode::kMalformed,
                       folder.string() + ": no tensor lm_head.weight, though config.json does " +
                           "not say tie_word_embeddings: true");
    }
    checkpoint.get(tensor.name, kFloats, tensor.shape);
    expected.insert(std::move(tensor.name));
  }
  // A tensor we would not use, a bias say, means that the file computes something else than we
  // would.
  for (const std::string& name : checkpoint.names()) {
    if (expected.contains(name) || is_ignorable(name, config)) continue;
    throw FatalError(ErrorCode::kUnsupportedModel,
                     checkpoint.at(name).file->path().string() + ": tensor " + name +
                         " has no place in a " + config.architecture + " with this config.json");
  }
}

std::optional<std::string> what_is_not_finite(const Checkpoint::Tensor& tensor) {
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

DType resolve_weight_dtype(const Checkpoint& checkpoint, WeightDType asked) {
  switch (asked) {
    case WeightDType::kAuto: {
      const auto dtype =
          dtype_of(checkpoint.at(names::layer(0, "self_attn.q_proj.weight")).info->type);
      FORETOKEN_CHECK(dtype.has_value());
      return *dtype;
    }
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

DType default_kv_dtype(DType weights) { return weights == DType::kI8 ? DType::kBf16 : weights; }

}  // namespace foretoken
