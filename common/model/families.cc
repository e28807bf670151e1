#include "common/model/families.h"

#include <array>

#include "common/base/check.h"

namespace foretoken {
namespace {

constexpr std::array<FamilyRow, 4> kFamilies{{
    {.family = Family::kLlama,
     .model_type = "llama",
     .architecture = "LlamaForCausalLM",
     .qkv_bias_in_code = false,
     .reads_attention_bias = true,
     .reads_mlp_bias = true,
     .qk_norm = false,
     .needs_n_kv_heads = false,
     .default_head_dim = 0,
     .window = WindowRule::kNone},
    {.family = Family::kQwen2,
     .model_type = "qwen2",
     .architecture = "Qwen2ForCausalLM",
     .qkv_bias_in_code = true,
     .reads_attention_bias = false,
     .reads_mlp_bias = false,
     .qk_norm = false,
     .needs_n_kv_heads = true,
     .default_head_dim = 0,
     .window = WindowRule::kIfSwitch},
    {.family = Family::kQwen3,
     .model_type = "qwen3",
     .architecture = "Qwen3ForCausalLM",
     .qkv_bias_in_code = false,
     .reads_attention_bias = true,
     .reads_mlp_bias = false,
     .qk_norm = true,
     .needs_n_kv_heads = true,
     .default_head_dim = 128,
     .window = WindowRule::kIfSwitch},
    {.family = Family::kMistral,
     .model_type = "mistral",
     .architecture = "MistralForCausalLM",
     .qkv_bias_in_code = false,
     .reads_attention_bias = false,
     .reads_mlp_bias = false,
     .qk_norm = false,
     .needs_n_kv_heads = true,
     .default_head_dim = 0,
     .window = WindowRule::kIfSet},
}};

}  // namespace

std::span<const FamilyRow> families() { return kFamilies; }

const FamilyRow& family_row(Family family) {
  for (const FamilyRow& row : kFamilies)
    if (row.family == family) return row;
  FORETOKEN_CHECK(false, "a family without a row");
}

const FamilyRow* find_family(std::string_view architecture, std::string_view model_type) {
  for (const FamilyRow& row : kFamilies)
    if (architecture.empty() ? row.model_type == model_type : row.architecture == architecture)
      return &row;
  return nullptr;
}

std::string supported_families() {
  std::string text;
  for (const FamilyRow& row : kFamilies)
    text += (text.empty() ? "" : ", ") + std::string(row.architecture);
  return text;
}

std::string names::layer(std::int32_t layer, std::string_view rest) {
  return "model.layers." + std::to_string(layer) + "." + std::string(rest);
}

std::vector<ExpectedTensor> expected_tensors(const ModelConfig& c) {
  const std::int64_t hidden = c.n_hidden, head_dim = c.head_dim, ffn = c.n_ffn;
  const std::int64_t q = std::int64_t{c.n_heads} * head_dim,
                     kv = std::int64_t{c.n_kv_heads} * head_dim;
  std::vector<ExpectedTensor> all;
  all.push_back({std::string(names::kEmbedding), {c.vocab_size, hidden}});
  for (std::int32_t l = 0; l < c.n_layers; ++l) {
    const auto add = [&](std::string_view rest, std::vector<std::int64_t> shape) {
      all.push_back({names::layer(l, rest), std::move(shape)});
    };
    const auto linear = [&](const std::string& name, std::int64_t n_out, std::int64_t n_in,
                            bool bias) {
      add(name + ".weight", {n_out, n_in});
      if (bias) add(name + ".bias", {n_out});
    };
    add("input_layernorm.weight", {hidden});
    linear("self_attn.q_proj", q, hidden, c.qkv_bias);
    linear("self_attn.k_proj", kv, hidden, c.qkv_bias);
    linear("self_attn.v_proj", kv, hidden, c.qkv_bias);
    if (c.qk_norm) add("self_attn.q_norm.weight", {head_dim});
    if (c.qk_norm) add("self_attn.k_norm.weight", {head_dim});
    linear("self_attn.o_proj", hidden, q, c.o_bias);
    add("post_attention_layernorm.weight", {hidden});
    linear("mlp.gate_proj", ffn, hidden, c.mlp_bias);
    linear("mlp.up_proj", ffn, hidden, c.mlp_bias);
    linear("mlp.down_proj", hidden, ffn, c.mlp_bias);
  }
  all.push_back({std::string(names::kFinalNorm), {hidden}});
  const std::int64_t n_head = c.head_ids.empty() ? c.vocab_size : std::ssize(c.head_ids);
  if (!c.tie_word_embeddings) all.push_back({std::string(names::kHead), {n_head, hidden}});
  return all;
}

bool is_ignorable(std::string_view name, const ModelConfig& config) {
  return name.ends_with(".rotary_emb.inv_freq") ||
         (config.tie_word_embeddings && name == names::kHead);
}

}  // namespace foretoken
