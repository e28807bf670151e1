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

// A sentence naming file, tensor, index and value where an element is no finite number; else
// nothing. Reads the contents.
std::optional<std::string> what_is_not_finite(const Checkpoint::Tensor& tensor);

// The dtype all linears get: the one asked for, or with kAuto the one the first layer is stored in.
DType resolve_weight_dtype(const Checkpoint& checkpoint, WeightDType asked);

// K and V are kept as the weights are; beside int8 weights as bf16.
DType default_kv_dtype(DType weights);

}  // namespace foretoken
