// The scales of a KV cache in eight bits (E4M3) that a checkpoint holds: of each layer one for keys
// and one for values, or one for each KV head, as the names and shapes of several writers have
// them. An element of the cache is its code times the scale. Reads a checkpoint; uses no device.
#pragma once

#include <string>
#include <vector>

#include "common/model/config.h"
#include "common/model/safetensors.h"
#include "kernels/include/types.h"

namespace foretoken {

// Scales within these keep every code and its share of a sum far from the ends of float32.
inline constexpr float kLeastKvScale = 1e-30f;
inline constexpr float kMostKvScale = 1e30f;

// Names of tensors a folder may have for them, of every layer and spelling. Without an E4M3 cache
// they change nothing.
std::vector<std::string> kv_scale_names(const ModelConfig& config);

struct KvScales {
  std::vector<std::string> tensors;  // that count, each once, ascending by layer, keys first
  std::vector<float> values;         // [n_layers][K, V][n_kv_heads]; empty: there are none
  bool by_head = false;              // somewhere one for each KV head, not one for all
  // A sentence for each layer or tensor that has not what it should, naming file, tensor and limit.
  // `values` are for nothing then.
  std::vector<std::string> problems;
};

// Empty too where config.kv_scheme says that they are for another cache. After check_tensor_set.
KvScales read_kv_scales(const ModelConfig& config, const Checkpoint& checkpoint);

// For people: whose scales a cache of this type has, and that those of the folder are not used.
// Empty where there is nothing to say.
std::string what_of_kv_scales(const ModelConfig& config,
                              const Checkpoint& checkpoint,
                              DType kv_dtype);

}  // namespace foretoken
