// A checkpoint against a config: every tensor the config implies is there with its shape and a
// dtype we read, and nothing is there that the config does not imply. Looks at headers only.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "common/model/config.h"
#include "common/model/load_model.h"
#include "common/model/safetensors.h"

namespace foretoken {

// Throws FatalError naming file, tensor, expectation and finding.
void check_tensor_set(const ModelConfig& config,
                      const Checkpoint& checkpoint,
                      const std::filesystem::path& folder);

// A tensor of a float checkpoint's name as this one has it: itself, or its int8 codes packed four
// to a 32-bit word (row by row, the first in the lowest byte, each plus 128).
struct StoredTensor {
  Checkpoint::Tensor tensor;
  DType dtype = DType::kF32;
  bool packed = false;
};

// One of the two must be there: check_tensor_set has seen it.
StoredTensor stored_as(const Checkpoint& checkpoint, const std::string& name);

// A sentence naming file, tensor, index and value where an element is no finite number; else
// nothing. Reads the contents.
std::optional<std::string> what_is_not_finite(const Checkpoint::Tensor& tensor);

// What `dtype = auto` makes of float matrices: the type the first layer is stored in, of a
// quantised checkpoint the embedding's.
DType float_dtype(const Checkpoint& checkpoint);

// The dtype a matrix is held in that is stored as `stored`: the one asked for, or with kAuto its
// own if it is quantised and else the checkpoint's float_dtype.
DType held_dtype(DType stored, WeightDType asked, DType float_dtype);

// K and V are kept as the weights are; beside weights in eight bits as bf16.
DType default_kv_dtype(DType weights);

}  // namespace foretoken
