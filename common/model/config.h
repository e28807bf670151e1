// What a model is, as data: every number and switch of a config.json that changes the arithmetic,
// read once and validated (hf_folder.cc), then never changed. Uses no file, no tensor and no
// device. Plain values; copy freely.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/ids.h"
#include "common/base/sampling_params.h"
#include "kernels/include/types.h"

namespace foretoken {

enum class Family : std::uint8_t { kLlama, kQwen2, kQwen3, kMistral };

// The name as config.json's model_type has it: "llama", "qwen2", "qwen3", "mistral".
std::string_view family_name(Family family);

enum class RopeType : std::uint8_t { kDefault, kLinear, kLlama3, kYarn };

std::string_view rope_type_name(RopeType type);

// How positions become angles (rope.h does the arithmetic). Fields a type does not use keep their
// defaults.
struct RopeSpec {
  RopeType type = RopeType::kDefault;
  double theta = 10000.0;
  double factor = 1.0;                                // linear, llama3, yarn
  double low_freq_factor = 1.0;                       // llama3
  double high_freq_factor = 4.0;                      // llama3
  std::int64_t original_max_position_embeddings = 0;  // llama3, yarn
  double beta_fast = 32.0;                            // yarn
  double beta_slow = 1.0;                             // yarn
  // yarn: given outright, else from factor and the mscales.
  std::optional<double> attention_factor = {};
  double mscale = 0.0;          // yarn, 0 = not given
  double mscale_all_dim = 0.0;  // yarn, 0 = not given
  bool truncate = true;         // yarn: correction range rounded to whole dimensions
  bool operator==(const RopeSpec&) const = default;
};

// What quantization_config.kv_cache_scheme says of the scales in the folder.
struct KvScheme {
  bool is_given = false;
  // Why they are not for a cache in E4M3: "kv_cache_scheme.type is \"int\"".
  std::string unfit = {};
  bool operator==(const KvScheme&) const = default;
};

// A scale for each row, where a number of weights that share one is asked for: more than any row
// has.
inline constexpr std::int64_t kWholeRow = std::int64_t{1} << 40;

// Where a folder's codes of four bits lie: row by row, or in the words of AutoGPTQ (whose first
// format has zero points less 1) or AutoAWQ (int4_words.h).
enum class Int4Layout : std::uint8_t { kRows, kGptq, kGptqV2, kAwq };

// What a folder's quantization_config says that linears are stored in. Tensors decide which are.
struct QuantisedTypes {
  std::optional<DType> in_8_bits = {};  // kI8 or kF8E4M3
  std::int64_t int4_group = 0;          // of four bits: weights that share a scale; 0: none are
  Int4Kind int4_kind = Int4Kind::kOffset;
  Int4Layout int4_layout = Int4Layout::kRows;

  bool any() const { return in_8_bits.has_value() || int4_group != 0; }
  bool operator==(const QuantisedTypes&) const = default;
};

struct ModelConfig {
  Family family = Family::kLlama;
  std::string architecture;  // as config.json names it: "LlamaForCausalLM"

  std::int32_t n_layers = 0;
  std::int32_t n_hidden = 0;
  std::int32_t n_heads = 0;
  std::int32_t n_kv_heads = 0;
  std::int32_t head_dim = 0;  // even; may differ from n_hidden / n_heads
  std::int32_t n_ffn = 0;
  std::int32_t vocab_size = 0;  // rows of the embedding: may exceed the tokenizer's ids (padding)
  float rms_norm_eps = 1e-6f;
  RopeSpec rope;

  // The embedding is the head. As config.json says, until check_tensor_set finds a head of its own.
  bool tie_word_embeddings = false;
  // The ids of the head's rows, ascending; empty: row r is id r. Only drafts may have them.
  std::vector<TokenId> head_ids = {};
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;  // RMSNorm of each head of q and k before RoPE

  std::int64_t max_position_embeddings = 0;
  std::int64_t sliding_window = 0;       // tokens that a row attends to, itself included; 0: all
  DType checkpoint_dtype = DType::kF32;  // what config.json says; tensors themselves decide

  std::optional<TokenId> bos_token_id = {};
  // generation_config.json's if it names any, else config.json's; ascending. Of a loaded model that
  // has neither those of LoadOptions.
  std::vector<TokenId> eos_token_ids;
  SamplingDefaults generation;  // of generation_config.json

  // Longest sequence this load serves; load_model may lower it. See context_length().
  std::int64_t max_model_len = 0;
  QuantisedTypes quantized = {};
  KvScheme kv_scheme = {};

  // How many matrices of a loaded model are held in which type, "bfloat16 1, int8 14"; load_model
  // sets it. Part of the numerics fingerprint.
  std::string weight_types = {};
  // Whose scales the KV cache has, and what became of those in the folder, for people; empty: there
  // is nothing to say. load_model sets it.
  std::string kv_scales = {};

  bool operator==(const ModelConfig&) const = default;
};

// Positions that can be served: max_position_embeddings, stretched by yarn and linear scaling, and
// no more than the sliding window, within which attention to the window is attention to everything.
std::int64_t context_length(const ModelConfig& config);

// Tokens before a row over which its attention takes as long as its matrices do.
double equal_attention_context(const ModelConfig& config);

// Bytes of K and V that one token takes over all layers.
std::size_t kv_bytes_per_token(const ModelConfig& config, DType kv_dtype);

}  // namespace foretoken
