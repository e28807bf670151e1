// Families as rows of data: what a family fixes in code where others have a config field, which
// fields it reads, and the names its tensors carry. One decoder serves all rows; a new family of
// this shape is a new row.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/model/config.h"

namespace foretoken {

enum class WindowRule : std::uint8_t {
  kNone,      // no sliding window in this family
  kIfSet,     // sliding_window that is not null is in force
  kIfSwitch,  // only with use_sliding_window, from layer max_window_layers on
};

struct FamilyRow {
  Family family;
  std::string_view model_type;
  std::string_view architecture;
  bool qkv_bias_in_code;      // q, k, v always have a bias and o never has
  bool reads_attention_bias;  // attention_bias: q, k, v and o have one
  bool reads_mlp_bias;        // mlp_bias: gate, up and down have one
  bool qk_norm;
  bool needs_n_kv_heads;  // num_key_value_heads has no default that equals num_attention_heads
  std::int32_t default_head_dim;  // 0: n_hidden / n_heads
  WindowRule window;
};

std::span<const FamilyRow> families();
const FamilyRow& family_row(Family family);
// By architectures[0], or by model_type if the file names no architecture; null if we have no such
// family.
const FamilyRow* find_family(std::string_view architecture, std::string_view model_type);
std::string supported_families();  // "LlamaForCausalLM, …", for messages

// The name of a tensor: of the whole model, or of one layer ("self_attn.q_proj.weight").
namespace names {
inline constexpr std::string_view kEmbedding = "model.embed_tokens.weight";
inline constexpr std::string_view kFinalNorm = "model.norm.weight";
inline constexpr std::string_view kHead = "lm_head.weight";
std::string layer(std::int32_t layer, std::string_view rest);
}  // namespace names

// A tensor the config implies.
struct ExpectedTensor {
  std::string name;
  std::vector<std::int64_t> shape;
};

// Every tensor of a model with this config, each once, embedding first, then layer by layer.
std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config);

// Tensors that some checkpoints carry and no pass needs: RoPE buffers of old files, the head of a
// tied model.
bool is_ignorable(std::string_view name, const ModelConfig& config);

}  // namespace foretoken
