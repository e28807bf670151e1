#include "common/model/pair.h"

#include <cmath>

#include "common/base/check.h"
#include "common/model/decoder.h"
#include "common/model/families.h"
#include "common/model/held_weights.h"
#include "common/model/hf_folder.h"
#include "common/model/kv_scales.h"
#include "common/model/quantization_parameters.h"
#include "common/model/safetensors.h"
#include "common/model/stored_tensor.h"
#include "common/model/tensor_set.h"

namespace foretoken {
namespace {

std::uint64_t n_elements(const ExpectedTensor& tensor) {
  std::uint64_t n = 1;
  for (std::int64_t dimension : tensor.shape) n *= static_cast<std::uint64_t>(dimension);
  return n;
}

// Bytes of a rank's part of a tensor once loaded: matrices in `dtype` (quantised ones with a scale
// per row), vectors in float32. config: of the whole model, on which the groups of int4 depend.
std::uint64_t loaded_bytes(const ExpectedTensor& tensor,
                           Split split,
                           DType dtype,
                           const ModelConfig& config,
                           const RankOf& who) {
  const auto n_rows = static_cast<std::uint64_t>(rows_of(split, tensor.shape[0], config, who).n());
  if (tensor.shape.size() == 1) return sizeof(float) * n_rows;
  const std::int64_t n_columns = columns_of(split, tensor.shape[1], config, who).n();
  const std::int64_t packed =
      row_bytes(dtype, n_columns, held_group(config), held_int4_kind(config));
  return n_rows * (static_cast<std::uint64_t>(packed) + (is_quantised(dtype) ? sizeof(float) : 0));
}

std::string in_mib(std::uint64_t n_bytes) {
  return std::to_string((n_bytes + (1u << 20) - 1) >> 20) + " MiB";
}

}  // namespace

ModelInfo describe(const ModelConfig& config, const Checkpoint& checkpoint, int n_ranks) {
  ModelInfo info;
  info.config = config;
  for (const ExpectedTensor& tensor : expected_tensors(config)) {
    info.n_parameters += n_elements(tensor);
    const StoredTensor stored = stored_as(checkpoint, tensor);
    info.stored.push_back(stored.dtype);
    info.has_groups_out_of_order |= !column_groups(config, checkpoint, stored).empty();
  }
  info.checkpoint_dtype = float_dtype(config, checkpoint);
  for (const WeightDType dtype : kWeightDTypes)
    for (int rank = 0; rank < n_ranks; ++rank)
      if (auto why = why_not_held(config, checkpoint, dtype, {rank, n_ranks}))
        info.not_held.emplace(dtype, std::move(*why));
  info.kv_scale_problems = read_kv_scales(config, checkpoint).problems;
  info.file_bytes = info.step_bytes = checkpoint.total_bytes();
  if (!config.tie_word_embeddings)
    info.step_bytes -=
        stored_as(checkpoint, std::string(names::kEmbedding), config.n_hidden).tensor.bytes.size();
  info.n_tensors = static_cast<std::uint32_t>(checkpoint.names().size());
  info.n_files = static_cast<std::uint32_t>(checkpoint.n_files());
  return info;
}

ModelInfo inspect_model(const std::filesystem::path& folder, int n_ranks) {
  ModelConfig config = read_model_config(folder);
  const Checkpoint checkpoint(folder);
  check_tensor_set(config, checkpoint, folder);
  return describe(config, checkpoint, n_ranks);
}

std::vector<std::string> weights_not_finite(const std::filesystem::path& folder,
                                            std::size_t n_most) {
  ModelConfig config = read_model_config(folder);
  const Checkpoint checkpoint(folder);
  check_tensor_set(config, checkpoint, folder);
  std::vector<std::string> sentences;
  for (const ExpectedTensor& tensor : expected_tensors(config)) {
    if (sentences.size() == n_most) break;
    const StoredTensor stored = stored_as(checkpoint, tensor);
    auto sentence = what_is_not_finite(stored.tensor);
    if (!sentence && is_quantised(stored.dtype))
      sentence = what_is_wrong_in_parameters(config, checkpoint, tensor);
    if (sentence) sentences.push_back(std::move(*sentence));
  }
  checkpoint.check_unchanged();
  return sentences;
}

MemoryEstimate estimate_memory(const ModelInfo& info,
                               const LoadOptions& options,
                               const RankOf& who) {
  const ModelConfig& whole = info.config;
  const ModelConfig c = share_of(whole, who);
  MemoryEstimate estimate;
  DType first = info.checkpoint_dtype;  // of the first layer's linears
  const auto tensors = expected_tensors(whole);
  FORETOKEN_CHECK(info.stored.size() == tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const DType held =
        held_dtype(whole, tensors[i].name, info.stored[i], options.dtype, info.checkpoint_dtype);
    const Split split = split_of(tensors[i].name);
    estimate.weight_bytes += loaded_bytes(tensors[i], split, held, whole, who);
    if (tensors[i].name == names::layer(0, "self_attn.q_proj.weight")) first = held;
    // A rank holds its slice of a tied head beside the embedding.
    if (tensors[i].name == names::kEmbedding && whole.tie_word_embeddings && who.n_ranks > 1)
      estimate.weight_bytes += loaded_bytes(tensors[i], Split::kVocabulary, held, whole, who);
  }
  const std::int64_t n_positions = served_positions(c, options);
  estimate.scratch_bytes = decoder_scratch_bytes(c, options.max_rows, who.n_ranks) +
                           sizeof(float) * static_cast<std::uint64_t>(n_positions) *
                               static_cast<std::uint64_t>(c.head_dim);
  if (options.kv_dtype == DType::kF8E4M3)
    estimate.scratch_bytes += 2 * sizeof(float) * static_cast<std::uint64_t>(c.n_layers) *
                              static_cast<std::uint64_t>(c.n_kv_heads);
  estimate.kv_bytes_per_token =
      kv_bytes_per_token(c, options.kv_dtype.value_or(default_kv_dtype(first)));
  return estimate;
}

Result<void> fits(const MemoryEstimate& estimate,
                  std::uint64_t free_bytes,
                  std::string_view folder_name) {
  if (estimate.weight_bytes + estimate.scratch_bytes <= free_bytes) return {};
  return Error{ErrorCode::kOutOfMemory,
               std::string(folder_name) + " needs " + in_mib(estimate.weight_bytes) +
                   " for its weights and " + in_mib(estimate.scratch_bytes) + " to work in, and " +
                   in_mib(free_bytes) +
                   " are free: a smaller model.dtype (int8, int4), model.max_model_len or "
                   "limits.max_batch_rows needs less",
               "model.dtype"};
}

std::optional<std::string> why_no_self_draft(const ModelConfig& target) {
  if (!target.quantized.any()) return std::nullopt;
  return "a draft of the target's weights in four bits is for weights of 16 bits and more; these "
         "are "
         "stored in four or eight, and it would hardly be faster";
}

std::vector<PairFinding> check_pair(const ModelInfo& draft, const ModelInfo& target) {
  std::vector<PairFinding> findings;
  const auto add = [&](PairFinding::Level level, std::string sentence) {
    findings.push_back({level, std::move(sentence)});
  };
  const std::int64_t draft_context = context_length(draft.config),
                     target_context = context_length(target.config);
  if (draft_context < target_context) {
    add(PairFinding::Level::kWarn,
        "the draft was made for " + std::to_string(draft_context) + " positions, the target for " +
            std::to_string(target_context) + ": beyond the draft's, text is written without it");
  }
  // One draft step per guessed token: from about a fifth of the target's cost on, little can be
  // won.
  const double share =
      static_cast<double>(draft.n_parameters) / static_cast<double>(target.n_parameters);
  if (share >= 1) {
    add(PairFinding::Level::kWarn,
        "the draft has " + std::to_string(draft.n_parameters) + " parameters, the target " +
            std::to_string(target.n_parameters) + ": guessing would cost more than it saves");
  } else if (share > 0.2) {
    add(PairFinding::Level::kWarn,
        "the draft has " + std::to_string(std::lround(share * 100)) +
            " % of the target's parameters; above 20 % little speed can be gained");
  }
  if (draft.config.eos_token_ids != target.config.eos_token_ids) {
    add(PairFinding::Level::kWarn,
        "draft and target name different end tokens: the draft may guess past the target's end");
  }
  return findings;
}

}  // namespace foretoken
