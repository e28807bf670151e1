// What can be said of a model folder without loading it, and whether two of them make a draft and a
// target as far as shapes and memory go. Vocabularies are compared on the tokenizer's side,
// acceptance by measuring.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/model/config.h"
#include "common/model/load_model.h"
#include "common/model/safetensors.h"
#include "common/model/shard.h"

namespace foretoken {

struct ModelInfo {
  ModelConfig config;
  std::vector<DType> stored;             // of each expected tensor, in their order
  DType checkpoint_dtype = DType::kF32;  // what dtype "auto" makes of float matrices
  // Of int4: the columns of a group do not follow one another (desc_act).
  bool has_groups_out_of_order = false;
  std::map<WeightDType, std::string> not_held;  // why a `dtype` is refused, on any device
  std::vector<std::string> kv_scale_problems;   // why a cache in float8_e4m3 is
  std::uint64_t n_parameters = 0;               // tied embeddings count once
  std::uint64_t file_bytes = 0;                 // of all tensors as stored
  std::uint64_t step_bytes =
      0;  // of those that a step reads: of an embedding apart from the head, none
  std::uint32_t n_tensors = 0;
  std::uint32_t n_files = 0;
};

// What its headers say, for a model spread over `n_ranks` (not_shardable() is asked first);
// `checkpoint` has passed check_tensor_set.
ModelInfo describe(const ModelConfig& config, const Checkpoint& checkpoint, int n_ranks = 1);

// Reads and validates everything but the contents of tensors larger than a scale. Throws FatalError
// as load_model does.
ModelInfo inspect_model(const std::filesystem::path& folder, int n_ranks = 1);

// Reads every weight. A sentence for each tensor with a value that is no finite number, or scales
// that make one or are negative; at most `n_most` of them.
std::vector<std::string> weights_not_finite(const std::filesystem::path& folder,
                                            std::size_t n_most = 16);

struct MemoryEstimate {
  std::uint64_t weight_bytes = 0;
  std::uint64_t scratch_bytes = 0;  // activations and RoPE tables for max_rows and max_model_len
  std::uint64_t kv_bytes_per_token = 0;
};

// Of the whole model, or of one rank of it (not_shardable() is asked first).
MemoryEstimate estimate_memory(const ModelInfo& info,
                               const LoadOptions& options,
                               const RankOf& who = {});

// kOutOfMemory, in MiB and by the keys that would help, if weights and scratch are more than is
// free.
Result<void> fits(const MemoryEstimate& estimate,
                  std::uint64_t free_bytes,
                  std::string_view folder_name);

// A finding is a sentence; kRefuse means the pair cannot work, kWarn that it will work less well
// than hoped.
struct PairFinding {
  enum class Level : std::uint8_t { kRefuse, kWarn };
  Level level = Level::kWarn;
  std::string sentence;
};

// Why a target cannot guess for itself with its weights in four bits; nothing if it can.
std::optional<std::string> why_no_self_draft(const ModelConfig& target);

// Shapes, context lengths, relative cost. Empty: nothing to say against it.
std::vector<PairFinding> check_pair(const ModelInfo& draft, const ModelInfo& target);

}  // namespace foretoken
