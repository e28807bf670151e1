#include "common/model/held_weights.h"

#include <map>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/model/families.h"
#include "common/model/int4.h"
#include "common/model/quantization_parameters.h"
#include "common/model/stored_tensor.h"

namespace foretoken {
namespace {

std::string file_of(const StoredTensor& stored) { return stored.tensor.file->path().string(); }

// Matrices that share their input are multiplied as one.
std::optional<std::string> stack_not_alike(const ModelConfig& config,
                                           const Checkpoint& checkpoint) {
  static constexpr std::pair<std::string_view, std::string_view> kNeighbours[] = {
      {"self_attn.q_proj", "self_attn.k_proj"},
      {"self_attn.q_proj", "self_attn.v_proj"},
      {"mlp.gate_proj", "mlp.up_proj"}};
  for (std::int32_t layer = 0; layer < config.n_layers; ++layer) {
    for (const auto& [first, second] : kNeighbours) {
      const std::string one = names::layer(layer, first), other = names::layer(layer, second);
      const StoredTensor here = stored_as(checkpoint, one + ".weight", config.n_hidden),
                         there = stored_as(checkpoint, other + ".weight", config.n_hidden);
      const bool is_float = !is_quantised(here.dtype) && !is_quantised(there.dtype);
      if (is_float || here.dtype == there.dtype) continue;
      return file_of(there) + ": " + one + " is stored as " + dtype_name(here.dtype) + " and " +
             other + " as " + dtype_name(there.dtype) +
             ": matrices that share their input must be quantised alike; model.dtype = " +
             "\"bfloat16\" or \"int8\" makes them so";
    }
  }
  return std::nullopt;
}

// Where GPTQ took columns by their weight (desc_act), those of a group lie apart, and no product
// here finds them.
std::optional<std::string> groups_out_of_order(const ModelConfig& config,
                                               const Checkpoint& checkpoint,
                                               const StoredTensor& stored) {
  if (column_groups(config, checkpoint, stored).empty()) return std::nullopt;
  return file_of(stored) + ": tensor " + stored.group_of +
         " has groups whose columns do not follow one another (desc_act: true), which cannot be "
         "multiplied in four bits: use a folder made with desc_act: false, or model.dtype = "
         "\"bfloat16\" or \"int8\", which put every column to its scale";
}

// A rank's columns of a matrix that is held in the groups it is stored in.
std::optional<std::string> columns_within_group(const ModelConfig& config,
                                                const StoredTensor& stored,
                                                const ExpectedTensor& tensor,
                                                int n_ranks) {
  const std::int64_t group = held_group(config);
  for (int rank = 0; rank < n_ranks; ++rank) {
    const Range columns =
        columns_of(split_of(tensor.name), tensor.shape[1], config, {rank, n_ranks});
    if (columns.begin % group == 0) continue;
    return file_of(stored) + ": tensor " + tensor.name + " is stored in groups of " +
           std::to_string(group) + " columns, and rank " + std::to_string(rank) + " of " +
           std::to_string(n_ranks) + " would begin at column " + std::to_string(columns.begin) +
           ", within one: use fewer ranks, or model.dtype = \"bfloat16\" or \"int8\"";
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> rows_too_long(const std::string& file,
                                         const std::string& name,
                                         DType held,
                                         std::int64_t n_in) {
  if (held != DType::kI8 || n_in <= kMaxInInt8) return std::nullopt;
  return file + ": tensor " + name + " has rows of " + std::to_string(n_in) +
         " elements; in int8 they may have at most " + std::to_string(kMaxInInt8) +
         ": use bfloat16";
}

std::optional<std::string> why_not_held(const ModelConfig& config,
                                        const Checkpoint& checkpoint,
                                        WeightDType asked,
                                        const RankOf& who) {
  const DType floats = float_dtype(config, checkpoint);
  for (const ExpectedTensor& tensor : expected_tensors(config)) {
    if (tensor.shape.size() != 2) continue;
    const StoredTensor stored = stored_as(checkpoint, tensor);
    const DType held = held_dtype(config, tensor.name, stored.dtype, asked, floats);
    const Range columns = columns_of(split_of(tensor.name), tensor.shape[1], config, who);
    if (auto sentence = rows_too_long(file_of(stored), tensor.name, held, columns.n()))
      return sentence;
    if (held != DType::kI4 || stored.dtype != DType::kI4) continue;
    if (auto sentence = columns_within_group(config, stored, tensor, who.n_ranks)) return sentence;
    if (auto sentence = groups_out_of_order(config, checkpoint, stored)) return sentence;
  }
  return asked == WeightDType::kAuto ? stack_not_alike(config, checkpoint) : std::nullopt;
}

DType first_stored_dtype(const ModelConfig& config, const Checkpoint& checkpoint) {
  return stored_as(checkpoint, names::layer(0, "self_attn.q_proj.weight"), config.n_hidden).dtype;
}

DType float_dtype(const ModelConfig& config, const Checkpoint& checkpoint) {
  const DType first = first_stored_dtype(config, checkpoint);
  if (!is_quantised(first)) return first;
  return stored_as(checkpoint, std::string(names::kEmbedding), config.n_hidden).dtype;
}

std::int64_t held_group(const ModelConfig& config) {
  const std::int64_t stored = config.quantized.int4_group;
  return stored != 0 ? held_int4_group(stored) : int4_group(config, true);
}

Int4Kind held_int4_kind(const ModelConfig& config) {
  return config.quantized.int4_group != 0 ? config.quantized.int4_kind : Int4Kind::kNonUniform;
}

DType held_dtype(const ModelConfig& config,
                 std::string_view name,
                 DType stored,
                 WeightDType asked,
                 DType float_dtype) {
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
    case WeightDType::kI4:
      return stored == DType::kI4 || is_held_in_int4(name, held_int4_kind(config)) ? DType::kI4
                                                                                   : DType::kI8;
  }
  FORETOKEN_CHECK(false, "unknown dtype");
}

std::string held_types(const ModelConfig& config,
                       std::span<const DType> stored,
                       WeightDType asked,
                       DType float_dtype) {
  const std::vector<ExpectedTensor> tensors = expected_tensors(config);
  FORETOKEN_CHECK(stored.size() == tensors.size());
  std::map<std::string, int> n_matrices;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].shape.size() != 2) continue;
    const DType held = held_dtype(config, tensors[i].name, stored[i], asked, float_dtype);
    ++n_matrices[weight_type_name(held, held_group(config), held_int4_kind(config))];
  }
  std::string text;
  for (const auto& [name, n] : n_matrices)
    text += (text.empty() ? "" : ", ") + name + " " + std::to_string(n);
  return text;
}

DType default_kv_dtype(DType weights) { return is_quantised(weights) ? DType::kBf16 : weights; }

}  // namespace foretoken
