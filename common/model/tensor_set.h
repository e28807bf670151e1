// A checkpoint against a config: every tensor the config implies is there with its shape and a
// dtype we read, and nothing is there that the config does not imply. Looks at headers, at
// the shapes written beside packed codes, and at a head beside a tied embedding.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/model/config.h"
#include "common/model/families.h"
#include "common/model/load_model.h"
#include "common/model/safetensors.h"
#include "common/model/shard.h"

namespace foretoken {

// Throws FatalError naming file, tensor, expectation and finding. A config that ties the head to
// the embedding no longer does afterwards if the checkpoint has a head with other contents: the
// head in the file is the one that counts, as in the reference.
void check_tensor_set(ModelConfig& config,
                      const Checkpoint& checkpoint,
                      const std::filesystem::path& folder);

// A tensor of a float checkpoint's name as this one has it: itself, or its codes packed into 32-bit
// words row by row, the first in the lowest bits: four of int8, each plus 128, or eight of int4,
// each plus its zero point; or int4 in the words of another layout (int4_words.h).
struct StoredTensor {
  Checkpoint::Tensor tensor;
  DType dtype = DType::kF32;
  bool packed = false;
  // Names of tensors beside it. Empty: this checkpoint has none.
  std::string scales, zeros;
  std::string group_of;  // the group of each column
};

// One of them must be there: check_tensor_set has seen it. n_in: elements of a row.
StoredTensor stored_as(const Checkpoint& checkpoint, const std::string& name, std::int64_t n_in);
StoredTensor stored_as(const Checkpoint& checkpoint, const ExpectedTensor& tensor);

// A sentence naming file, tensor, index and value where an element is no finite number; else
// nothing. Reads the contents.
std::optional<std::string> what_is_not_finite(const Checkpoint::Tensor& tensor);

// A sentence naming file, tensor and limit if a matrix held so has rows longer than its products
// take (kMaxInInt8).
std::optional<std::string> rows_too_long(const std::string& file,
                                         const std::string& name,
                                         DType held,
                                         std::int64_t n_in);

// Why no backend can hold this checkpoint with `dtype = asked` over so many ranks: rows too long,
// stacked matrices that are not stored alike, a rank's columns that begin within a group, or groups
// whose columns do not follow one another.
// Nothing if one can. After check_tensor_set.
std::optional<std::string> why_not_held(const ModelConfig& config,
                                        const Checkpoint& checkpoint,
                                        WeightDType asked,
                                        const RankOf& who = {});

// The type of the first layer's linears.
DType first_stored_dtype(const ModelConfig& config, const Checkpoint& checkpoint);

// What `dtype = auto` makes of float matrices: the type the first layer is stored in, of a
// quantised checkpoint the embedding's.
DType float_dtype(const ModelConfig& config, const Checkpoint& checkpoint);

// The dtype the matrix `name` is held in that is stored as `stored`: the one asked for, or with
// kAuto its own if it is quantised and else the checkpoint's float_dtype.
DType held_dtype(std::string_view name, DType stored, WeightDType asked, DType float_dtype);

// The groups of matrices that are held in int4: those that the folder has them in, or
// int4_group(config).
std::int64_t held_group(const ModelConfig& config);

// K and V are kept as the weights are; beside weights in eight bits as bf16.
DType default_kv_dtype(DType weights);

}  // namespace foretoken
