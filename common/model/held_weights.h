// What `model.dtype` makes of a checkpoint: the type that each matrix is held in, and why one
// cannot be. After check_tensor_set. Looks at headers, and at the groups of columns of AutoGPTQ.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "common/model/config.h"
#include "common/model/load_model.h"
#include "common/model/safetensors.h"
#include "common/model/shard.h"

namespace foretoken {

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
// kAuto its own if it is quantised and else the checkpoint's float_dtype. config: has the kind of
// the codes of four bits, on which it depends what is held in them.
DType held_dtype(const ModelConfig& config,
                 std::string_view name,
                 DType stored,
                 WeightDType asked,
                 DType float_dtype);

// The groups of matrices that are held in int4: those that the folder has them in, or
// int4_group().
std::int64_t held_group(const ModelConfig& config);

// What the codes of matrices that are held in int4 stand for: as the folder has them, or
// kNonUniform, where all are quantised while loading.
Int4Kind held_int4_kind(const ModelConfig& config);

// How many matrices are held in which type, as the numerics fingerprint has it: "bfloat16 1,
// int4n/32 60". stored: of each expected tensor, in their order.
std::string held_types(const ModelConfig& config,
                       std::span<const DType> stored,
                       WeightDType asked,
                       DType float_dtype);

// K and V are kept as the weights are; beside weights in eight bits as bf16.
DType default_kv_dtype(DType weights);

}  // namespace foretoken
