// Where a checkpoint has a tensor of the float model: under its own name, or as codes under another
// one with scales beside. Looks at names and shapes; what_is_not_finite reads contents.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/model/families.h"
#include "common/model/safetensors.h"
#include "kernels/include/types.h"

namespace foretoken {

// What AutoGPTQ and AutoAWQ have in the place of X.weight: X.qweight, ...
namespace word_names {
inline constexpr std::string_view kCodes = "qweight", kZeroPoints = "qzeros", kScales = "scales",
                                  kGroupOf = "g_idx";
}  // namespace word_names

// A tensor of a float checkpoint's name as this one has it: itself, or its codes packed into 32-bit
// words row by row, the first in the lowest bits: four of int8, each plus 128, or eight of int4,
// each plus its zero point; or int4 in the words of another layout (int4_words.h); or bytes of two
// floats of four bits, the first in the lower half.
struct StoredTensor {
  Checkpoint::Tensor tensor;
  DType dtype = DType::kF32;
  bool packed = false;
  // Names of the tensors that belong to it. Empty: this checkpoint has none.
  std::string scales, zeros;
  std::string group_of;  // the group of each column
};

// One of them must be there: check_tensor_set has seen it. n_in: elements of a row.
StoredTensor stored_as(const Checkpoint& checkpoint, const std::string& name, std::int64_t n_in);
StoredTensor stored_as(const Checkpoint& checkpoint, const ExpectedTensor& tensor);

// The names of the tensors that a load of an expected one reads: itself or its codes, and what
// belongs to it.
std::vector<std::string> tensors_read_for(const Checkpoint& checkpoint,
                                          const ExpectedTensor& tensor);

// A sentence naming file, tensor, index and value where an element is no finite number; else
// nothing. Reads the contents.
std::optional<std::string> what_is_not_finite(const Checkpoint::Tensor& tensor);

}  // namespace foretoken
