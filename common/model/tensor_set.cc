#include "common/model/tensor_set.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <vector>

#include "common/model/families.h"
#include "common/model/head_ids.h"
#include "common/model/int4_words.h"
#include "common/model/kv_scales.h"
#include "common/model/quantization.h"
#include "common/model/quantization_config.h"
#include "common/model/stored_tensor.h"

namespace foretoken {

namespace {

constexpr std::array kFloats{TensorType::kF32, TensorType::kBf16, TensorType::kF16};
constexpr std::array kWords{TensorType::kI32};
constexpr std::array kBytes{TensorType::kU8};

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
    return checkpoint.contains(name_beside(tensor.name, word_names::kCodes)) ||
           checkpoint.contains(name_beside(tensor.name, word_names::kScales));
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
    return *expected.insert(name_beside(tensor.name, part)).first;
  };
  checkpoint.get(name(word_names::kCodes), kWords, code_words_shape(layout, n_out, n_in));
  checkpoint.get(name(word_names::kZeroPoints), kWords, zero_words_shape(layout, n_out, n_groups));
  checkpoint.get(name(word_names::kScales), kFloats, std::array{n_groups, n_out});
  if (layout != Int4Layout::kAwq &&
      checkpoint.contains(name_beside(tensor.name, word_names::kGroupOf)))
    checkpoint.get(name(word_names::kGroupOf), kWords, std::array{n_in});
}

// Floats of four bits, two to a byte, and an exponent for each 32. Notes the names that are used.
void check_mxfp4(const Checkpoint& checkpoint,
                 const ExpectedTensor& tensor,
                 std::set<std::string, std::less<>>& expected) {
  const std::int64_t n_out = tensor.shape[0], n_in = tensor.shape[1];
  const std::string codes = packed_name(tensor.name), exponents = scale_name(tensor.name);
  if (n_in % kMxfp4Group != 0)
    throw FatalError(ErrorCode::kUnsupportedModel,
                     checkpoint.at(codes).file->path().string() + ": tensor " + codes +
                         " has rows of " + std::to_string(n_in) +
                         " elements; in mxfp4 they are whole groups of " +
                         std::to_string(kMxfp4Group));
  checkpoint.get(codes, kBytes, std::array{n_out, n_in / 2});
  checkpoint.get(exponents, kBytes, std::array{n_out, n_in / kMxfp4Group});
  expected.insert({codes, exponents});
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
  if (is_int4 && config.quantized.int4_kind == Int4Kind::kE2m1)
    return check_mxfp4(checkpoint, tensor, expected);
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
    if (config.quantized.int4_kind == Int4Kind::kZeroPoints)
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
      !checkpoint.contains(name_beside(name, word_names::kCodes)))
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
       {name_beside(tensor.name, word_names::kCodes), packed_name(tensor.name)})
    if (checkpoint.contains(codes))
      throw FatalError(ErrorCode::kMalformed,
                       checkpoint.at(codes).file->path().string() + ": tensor " + codes +
                           " has packed codes, and nothing says how they are packed: neither "
                           "quantization_config of config.json nor " +
                           kSeparateQuantizationFiles[0].name + " or " +
                           kSeparateQuantizationFiles[1].name);
}

// Scales are there, and the codes that they are of are not.
void refuse_scales_without_codes(const ModelConfig& config,
                                 const Checkpoint& checkpoint,
                                 const ExpectedTensor& tensor) {
  const std::string scales = scale_name(tensor.name);
  if (config.quantized.int4_group == 0 || checkpoint.contains(tensor.name) ||
      !checkpoint.contains(scales))
    return;
  throw FatalError(ErrorCode::kMalformed, checkpoint.at(scales).file->path().string() + ": has " +
                                              scales + ", and the folder has no tensor " +
                                              packed_name(tensor.name));
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
  const std::string name(names::kHead), packed = packed_name(name);
  const std::string& stored = checkpoint.contains(packed) ? packed : name;
  if (config.tie_word_embeddings)
    throw FatalError(ErrorCode::kMalformed,
                     file + ": names the rows of " + name +
                         ", and config.json has tie_word_embeddings: true and the folder no head "
                         "of its own");
  if (!checkpoint.contains(stored))
    throw FatalError(ErrorCode::kMalformed,
                     file + ": names the rows of " + name + ", and there is no such tensor");
  const std::vector<std::int64_t>& shape = checkpoint.at(stored).info->shape;
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
    refuse_scales_without_codes(config, checkpoint, tensor);
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

}  // namespace foretoken
