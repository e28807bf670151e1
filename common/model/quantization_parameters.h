// What the codes of a quantised matrix are read with, in whatever layout it is stored: scales, zero
// points, and the group of each column. After check_tensor_set, which has seen names and shapes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/model/config.h"
#include "common/model/families.h"
#include "common/model/safetensors.h"
#include "common/model/stored_tensor.h"

namespace foretoken {

// By rows, however the checkpoint has them.
struct QuantizationParameters {
  std::vector<float> scales;           // one per row, [n_out], or one per group, [n_out, groups]
  std::vector<std::uint8_t> zeros;     // of int4, [n_out, groups]; empty: all 8
  std::vector<std::int32_t> group_of;  // of int4, by column; empty: they follow one another
};
// Of int4: the group of each column; empty where they follow one another.
std::vector<std::int32_t> column_groups(const ModelConfig& config,
                                        const Checkpoint& checkpoint,
                                        const StoredTensor& stored);
QuantizationParameters quantization_parameters(const ModelConfig& config,
                                               const Checkpoint& checkpoint,
                                               const ExpectedTensor& tensor);

// A sentence where a scale of a quantised matrix is no finite number, of eight bits negative (no
// writer makes one: it would turn the row's sign), or so large that a weight becomes infinite, and
// where zero points or groups of columns are not what they can be. A scale of zero is a row, or a
// group, of zeros.
std::optional<std::string> what_is_wrong_in_parameters(const ModelConfig& config,
                                                       const Checkpoint& checkpoint,
                                                       const ExpectedTensor& tensor);

}  // namespace foretoken
