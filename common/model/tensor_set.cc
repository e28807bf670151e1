#include "common/model/tensor_set.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <set>
#include <vector>

#include "common/base/check.h"
#include "common/model/beside_codes.h"
#include "common/model/convert.h"
#include "common/model/head_ids.h"
#include "common/model/int4.h"
#include "common/model/int4_words.h"
#include "common/model/kv_scales.h"
#include "common/model/quantization.h"
#include "common/model/quantization_config.h"

namespace foretoken {

namespace {

constexpr std::array kFloats{TensorType::kF32, TensorType::kBf16, TensorType::kF16};
constexpr std::array kWords{TensorType::kI32};

// Beside X.weight, as AutoGPTQ and AutoAWQ name them.
constexpr std::string_view kCodeWords = "qweight", kZeroWords = "qzeros", kScales = "scales",
                           kGroupOf = "g_idx";

// The embedding is looked up, not multiplied: it is never stored in eight bits.
bool is_stored_quantised(const ModelConfig& config,
                         const Checkpoint& checkpoint,
                         const ExpectedTensor& tensor) {
  const QuantisedTypes& types = config.quantized;
  if (tensor.shape.size() != 2 || tensor.name == names::kEmbedding) return false;
  if (checkpoint.contains(tensor.name))
    return types.in_8_bits &&
           checkpoint.at(tensor.name).info->type == tensor_type(*types.in_8_bits);
  if (is_transposed(types.int4_layout))
    return checkpoint.contains(beside_weight(tensor.name, kCodeWords)) ||
           checkpoint.contains(beside_weight(tensor.name, kScales));
  if (!checkpoint.contains(packed_name(tensor.name))) return false;
  return stored_as(checkpoint, tensor).dtype == DType::kI4 ? types.int4_group != 0
                                                           : types.in_8_bits == DType::kI8;
}

// Packed codes hide how many columns there are: where the two numbers are written beside them, they
// must be those of the config.
void check_shape_beside(const Checkpoint& checkpoint, const ExpectedTensor& tensor) {
  const std::string name = tensor.name + "_shape";
  if (!checkpoint.contains(name)) return;
  const Checkpoint::Tensor found = checkpoint.get(
      name, std::array{TensorType::kI64, TensorType::kI32}, std::array{std::int64_t{2}});
  std::array<std::int64_t, 2> shape{};
  if (found.info->type == TensorType::kI64) {
    std::memcpy(shape.data(), found.bytes.data(), sizeof shape);
  } else {
    std::array<std::int32_t, 2> narrow{};
    std::memcpy(narrow.data(), found.bytes.data(), sizeof narrow);
    std::ranges::copy(narrow, shape.begin());
  }
  if (std::ranges::equal(shape, tensor.shape)) return;
  throw FatalError(ErrorCode::kMalformed, found.file->path().string() + ": tensor " + name +
                                              " says " + shape_text(shape) +
                                              "; the config implies " + shape_text(tensor.shape));
}

// Four bits in the words of AutoGPTQ or AutoAWQ. Notes the names that are used.
void check_words(const ModelConfig& config,
                 const Checkpoint& checkpoint,
                 const ExpectedTensor& tensor,
                 std::set<std::string, std::less<>>& expected) {
  const std::int64_t n_out = tensor.shape[0], n_in = tensor.shape[1],
                     group = config.quantized.int4_group, n_groups = (n_in + group - 1) / group;
  const Int4Layout layout = config.quantized.int4_layout;
  const auto name = [&](std::string_view part) {
    return *expected.insert(beside_weight(tensor.name, part)).first;
  };
  checkpoint.get(name(kCodeWords), kWords, code_words_shape(layout, n_out, n_in));
  checkpoint.get(name(kZeroWords), kWords, zero_words_shape(layout, n_out, n_groups));
  checkpoint.get(name(kScales), kFloats, std::array{n_groups, n_out});
  if (layout != Int4Layout::kAwq && checkpoint.contains(beside_weight(tensor.name, kGroupOf)))
    checkpoint.get(name(kGroupOf), kWords, std::array{n_in});
}

// Of an asymmetric int4 matrix, a zero point for each group: in words, or, as older writers have
// it, a byte each.
void check_zero_points(const Checkpoint& checkpoint,
                       const ExpectedTensor& tensor,
                       std::int64_t n_groups,
                       std::set<std::string, std::less<>>& expected) {
  const std::string name = zero_point_name(tensor.name);
  expected.insert(name);
  const bool in_bytes =
      checkpoint.contains(name) && checkpoint.at(name).info->type == TensorType::kI8;
  if (in_bytes)
    checkpoint.get(name, std::array{TensorType::kI8}, std::array{tensor.shape[0], n_groups});
  else
    checkpoint.get(name, kWords, zero_words_shape(Int4Layout::kRows, tensor.shape[0], n_groups));
}

// Codes of the shape expected, and their scales: one, one per row, or of int4 one per group. Notes
// the names that are used.
void check_quantised(const ModelConfig& config,
                     const Checkpoint& checkpoint,
                     const ExpectedTensor& tensor,
                     std::set<std::string, std::less<>>& expected) {
  if (is_transposed(config.quantized.int4_layout))
    return check_words(config, checkpoint, tensor, expected);
  const std::int64_t n_out = tensor.shape[0], n_in = tensor.shape[1];
  const bool is_int4 = stored_as(checkpoint, tensor).dtype == DType::kI4;
  if (checkpoint.contains(tensor.name)) {
    checkpoint.get(tensor.name, std::array{checkpoint.at(tensor.name).info->type}, tensor.shape);
    expected.insert(tensor.name);
  } else {
    const std::string name = packed_name(tensor.name);
    checkpoint.get(name, std::array{TensorType::kI32},
                   std::array{n_out, is_int4 ? (n_in + 7) / 8 : (n_in + 3) / 4});
    check_shape_beside(checkpoint, tensor);
    expected.insert({name, tensor.name + "_shape"});
  }
  const std::string name = scale_name(tensor.name);
  expected.insert(name);
  if (is_int4) {
    const std::int64_t group = config.quantized.int4_group, n_groups = (n_in + group - 1) / group;
    checkpoint.get(name, kFloats, std::array{n_out, n_groups});
    if (config.quantized.int4_zeros == Int4Zeros::kOfGroup)
      check_zero_points(checkpoint, tensor, n_groups, expected);
    return;
  }
  if (checkpoint.contains(name)) {
    const std::vector<std::int64_t>& shape = checkpoint.at(name).info->shape;
    for (const std::vector<std::int64_t>& one : {std::vector<std::int64_t>{}, {1}, {n_out}})
      if (shape == one) return void(checkpoint.get(name, kFloats, one));
  }
  checkpoint.get(name, kFloats, std::array{n_out, std::int64_t{1}});
}

// AutoGPTQ writes a bias for every linear it quantises: of those without one it is all zeros.
bool is_bias_of_zeros(const ModelConfig& config,
                      const Checkpoint& checkpoint,
                      const std::string& name) {
  constexpr std::string_view kBias = ".bias";
  if (!is_transposed(config.quantized.int4_layout) || !name.ends_with(kBias) ||
      !checkpoint.contains(beside_weight(name, kCodeWords)))
    return false;
  return std::ranges::all_of(checkpoint.at(name).bytes,
                             [](std::byte byte) { return byte == std::byte{0}; });
}

// Codes are there, and no setting says what they mean.
void refuse_codes_without_settings(const ModelConfig& config,
                                   const Checkpoint& checkpoint,
                                   const ExpectedTensor& tensor) {
  if (config.quantized.any() || checkpoint.contains(tensor.name)) return;
  for (const std::string& codes :
       {beside_weight(tensor.name, kCodeWords), packed_name(tensor.name)})
    if (checkpoint.contains(codes))
      throw FatalError(ErrorCode::kMalformed,
                       checkpoint.at(codes).file->path().string() + ": tensor " + codes +
                           " has packed codes, and nothing says how they are packed: neither "
                           "quantization_config of config.json nor " +
                           kSeparateQuantizationFiles[0].name + " or " +
                           kSeparateQuantizationFiles[1].name);
}

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

// Files made by older tools repeat the embedding as the head.
bool has_own_head(const Checkpoint& checkpoint) {
  const std::string head_name(names::kHead), embedding_name(names::kEmbedding);
  if (!checkpoint.contains(head_name) || !checkpoint.contains(embedding_name)) return false;
  const Checkpoint::Tensor head = checkpoint.at(head_name),
                           embedding = checkpoint.at(embedding_name);
  return head.info->type != embedding.info->type || head.info->shape != embedding.info->shape ||
         !std::ranges::equal(head.bytes, embedding.bytes);
}

// Its rows are named by a file beside the tensors.
void check_trimmed_head(const ModelConfig& config,
                        const Checkpoint& checkpoint,
                        const std::filesystem::path& folder) {
  const std::string file = (folder / kHeadIdsFile).string();
  const std::string name(names::kHead);
  if (config.tie_word_embeddings)
    throw FatalError(ErrorCode::kMalformed,
                     file + ": names the rows of " + name +
                         ", and config.json has tie_word_embeddings: true and the folder no head "
                         "of its own");
  if (!checkpoint.contains(name))
    throw FatalError(ErrorCode::kMalformed,
                     file + ": names the rows of " + name + ", and there is no such tensor");
  const std::vector<std::int64_t>& shape = checkpoint.at(name).info->shape;
  if (!shape.empty() && shape[0] != std::ssize(config.head_ids))
    throw FatalError(ErrorCode::kMalformed,
                     file + ": has " + std::to_string(config.head_ids.size()) + " ids, and " +
                         name + " has " + std::to_string(shape[0]) +
                         " rows; each row must have one");
}

}  // namespace

void check_tensor_set(ModelConfig& config,
                      const Checkpoint& checkpoint,
                      const std::filesystem::path& folder) {
  if (config.tie_word_embeddings && has_own_head(checkpoint)) config.tie_word_embeddings = false;
  if (!config.head_ids.empty()) check_trimmed_head(config, checkpoint, folder);
  std::set<std::string, std::less<>> expected;
  for (ExpectedTensor& tensor : expected_tensors(config)) {
    if (is_stored_quantised(config, checkpoint, tensor)) {
      check_quantised(config, checkpoint, tensor, expected);
      continue;
    }
    if (tensor.name == names::kHead && !checkpoint.contains(tensor.name)) {
      throw FatalError(ErrorCode::kMalformed,
                       folder.string() + ": no tensor lm_head.weight, though config.json does " +
                           "not say tie_word_embeddings: true");
    }
    refuse_codes_without_settings(config, checkpoint, tensor);
    checkpoint.get(tensor.name, kFloats, tensor.shape);
    expected.insert(std::move(tensor.name));
  }
  for (std::string& name : kv_scale_names(config)) expected.insert(std::move(name));
  // A tensor we would not use, a bias say, means that the file computes something else than we
  // would.
  for (const std::string& name : checkpoint.names()) {
    if (expected.contains(name) || is_ignorable(name, config)) continue;
    if (config.quantized.any() && is_activation_scale(name)) continue;
    if (is_bias_of_zeros(config, checkpoint, name)) continue;
    throw FatalError(ErrorCode::kUnsupportedModel,
                     checkpoint.at(name).file->path().string() + ": tensor " + name +
                         " has no place in a " + config.architecture + " with this config.json");
  }
}

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
  if (const std::string codes = beside_weight(name, kCodeWords); checkpoint.contains(codes))
    return {.tensor = checkpoint.at(codes),
            .dtype = DType::kI4,
            .packed = true,
            .scales = beside_weight(name, kScales),
            .zeros = beside_weight(name, kZeroWords),
            .group_of = if_there(beside_weight(name, kGroupOf))};
  const Checkpoint::Tensor words = checkpoint.at(packed_name(name));
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

std::optional<std::string> what_is_not_finite(const Checkpoint::Tensor& tensor) {
  if (tensor.info->type == TensorType::kI32) return std::nullopt;  // packed codes
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
    const DType held = held_dtype(tensor.name, stored.dtype, asked, floats);
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
  return stored != 0 ? held_int4_group(stored) : int4_group(config);
}

DType held_dtype(std::string_view name, DType stored, WeightDType asked, DType float_dtype) {
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
      return stored == DType::kI4 || is_held_in_int4(name) ? DType::kI4 : DType::kI8;
  }
  FORETOKEN_CHECK(false, "unknown dtype");
}

DType default_kv_dtype(DType weights) { return is_quantised(weights) ? DType::kBf16 : weights; }

}  // namespace foretoken
