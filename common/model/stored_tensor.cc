#include "common/model/stored_tensor.h"

#include <cmath>
#include <utility>

#include "common/base/check.h"
#include "common/model/convert.h"
#include "common/model/int4_words.h"
#include "common/model/quantization.h"

namespace foretoken {

StoredTensor stored_as(const Checkpoint& checkpoint, const std::string& name, std::int64_t n_in) {
  if (checkpoint.contains(name)) {
    const Checkpoint::Tensor tensor = checkpoint.at(name);
    const DType dtype = *dtype_of(tensor.info->type);
    return {.tensor = tensor,
            .dtype = dtype,
            .scales = is_quantised(dtype) ? scale_name(name) : std::string()};
  }
  const auto if_there = [&](std::string beside) {
    return checkpoint.contains(beside) ? std::move(beside) : std::string();
  };
  if (const std::string codes = name_beside(name, word_names::kCodes); checkpoint.contains(codes))
    return {.tensor = checkpoint.at(codes),
            .dtype = DType::kI4,
            .packed = true,
            .scales = name_beside(name, word_names::kScales),
            .zeros = name_beside(name, word_names::kZeroPoints),
            .group_of = if_there(name_beside(name, word_names::kGroupOf))};
  const Checkpoint::Tensor words = checkpoint.at(packed_name(name));
  if (words.info->type == TensorType::kU8)
    return {.tensor = words, .dtype = DType::kI4, .packed = true, .scales = scale_name(name)};
  // Of at most four elements a row is one word either way.
  const auto& shape = words.info->shape;
  const bool is_int4 = n_in > 4 && shape.size() == 2 && shape[1] == (n_in + 7) / 8;
  return {.tensor = words,
          .dtype = is_int4 ? DType::kI4 : DType::kI8,
          .packed = true,
          .scales = scale_name(name),
          .zeros = is_int4 ? if_there(zero_point_name(name)) : std::string()};
}

StoredTensor stored_as(const Checkpoint& checkpoint, const ExpectedTensor& tensor) {
  return stored_as(checkpoint, tensor.name, tensor.shape.back());
}

std::vector<std::string> tensors_read_for(const Checkpoint& checkpoint,
                                          const ExpectedTensor& tensor) {
  const StoredTensor stored = stored_as(checkpoint, tensor);
  std::vector<std::string> names{stored.tensor.info->name};
  for (const std::string& part : {stored.scales, stored.zeros, stored.group_of})
    if (!part.empty()) names.push_back(part);
  return names;
}

std::optional<std::string> what_is_not_finite(const Checkpoint::Tensor& tensor) {
  if (tensor.info->type == TensorType::kI32 || tensor.info->type == TensorType::kU8)
    return std::nullopt;  // packed codes, and exponents, which have a check of their own
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

}  // namespace foretoken
