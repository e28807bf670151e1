#include "common/model/kv_scales.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "common/model/convert.h"
#include "common/model/families.h"

namespace foretoken {
namespace {

// Best first: where a layer has several, the first counts.
struct Spelling {
  std::string_view keys;
  std::string_view values;  // the same name: one number for both
};
constexpr std::array<Spelling, 4> kSpellings{{
    {"self_attn.k_scale", "self_attn.v_scale"},                          // llm-compressor
    {"self_attn.k_proj.k_scale", "self_attn.v_proj.v_scale"},            // ModelOpt
    {"self_attn.k_proj.output_scale", "self_attn.v_proj.output_scale"},  // llm-compressor, 2024
    {"self_attn.kv_scale", "self_attn.kv_scale"},                        // AutoFP8
}};
// Written beside the first, all zeros where the scheme is symmetric.
constexpr std::array<std::string_view, 2> kZeroPoints{"self_attn.k_zero_point",
                                                      "self_attn.v_zero_point"};
// Of queries, in folders that quantise all of attention: these stay as they are here.
constexpr std::array<std::string_view, 2> kOfQueries{"self_attn.q_scale", "self_attn.q_zero_point"};

std::string place_of(const Checkpoint::Tensor& tensor) {
  return tensor.file->path().string() + ": tensor " + tensor.info->name;
}

// One number, or as many as there are KV heads along one dimension.
bool has_fitting_shape(std::span<const std::int64_t> shape, std::int32_t n_kv_heads) {
  const auto is_one = [](std::int64_t dimension) { return dimension == 1; };
  const auto other = std::ranges::find_if_not(shape, is_one);
  return other == shape.end() ||
         (*other == n_kv_heads && std::all_of(other + 1, shape.end(), is_one));
}

std::optional<std::string> what_is_wrong(const Checkpoint::Tensor& tensor,
                                         std::int32_t n_kv_heads) {
  const TensorInfo& info = *tensor.info;
  constexpr std::array kFloats{TensorType::kF32, TensorType::kBf16, TensorType::kF16};
  if (std::ranges::find(kFloats, info.type) == kFloats.end())
    return place_of(tensor) + " has dtype " + std::string(tensor_type_name(info.type)) +
           "; a scale of keys or values is F32, BF16 or F16";
  if (!has_fitting_shape(info.shape, n_kv_heads))
    return place_of(tensor) + " has shape " + shape_text(info.shape) +
           "; a scale of keys or values is one number or one for each of " +
           std::to_string(n_kv_heads) + " KV heads, [" + std::to_string(n_kv_heads) + ", 1, 1]";
  std::vector<float> scales(info.n_elements());
  widen(*dtype_of(info.type), tensor.bytes, scales);
  for (std::size_t i = 0; i < scales.size(); ++i)
    if (!(scales[i] >= kLeastKvScale && scales[i] <= kMostKvScale)) {
      char number[32];
      std::snprintf(number, sizeof number, "%g", static_cast<double>(scales[i]));
      return place_of(tensor) + " has " + number + " at [" + std::to_string(i) +
             "]; a scale of keys or values is from 1e-30 to 1e+30";
    }
  return std::nullopt;
}

// [n_kv_heads] of a tensor with which nothing is wrong.
void append_scales(const Checkpoint::Tensor& tensor, std::int32_t n_kv_heads, KvScales& out) {
  std::vector<float> scales(tensor.info->n_elements());
  widen(*dtype_of(tensor.info->type), tensor.bytes, scales);
  if (scales.size() == 1)
    scales.resize(static_cast<std::size_t>(n_kv_heads), scales.front());
  else
    out.by_head = true;
  out.values.insert(out.values.end(), scales.begin(), scales.end());
}

// The spelling of which this layer has at least one half.
std::optional<Spelling> spelling_of(const Checkpoint& checkpoint, std::int32_t layer) {
  for (const Spelling& spelling : kSpellings)
    if (checkpoint.contains(names::layer(layer, spelling.keys)) ||
        checkpoint.contains(names::layer(layer, spelling.values)))
      return spelling;
  return std::nullopt;
}

void read_layer(const ModelConfig& config,
                const Checkpoint& checkpoint,
                std::int32_t layer,
                const Spelling& spelling,
                KvScales& out) {
  for (const std::string_view rest : {spelling.keys, spelling.values}) {
    const std::string name = names::layer(layer, rest);
    if (!checkpoint.contains(name)) {
      const std::string other =
          names::layer(layer, rest == spelling.keys ? spelling.values : spelling.keys);
      out.problems.push_back(place_of(checkpoint.at(other)) + " is there and " + name + " is not");
      continue;
    }
    const Checkpoint::Tensor tensor = checkpoint.at(name);
    if (auto sentence = what_is_wrong(tensor, config.n_kv_heads)) {
      // One tensor for both halves is wrong once.
      if (out.problems.empty() || out.problems.back() != *sentence)
        out.problems.push_back(std::move(*sentence));
      continue;
    }
    if (out.tensors.empty() || out.tensors.back() != name) out.tensors.push_back(name);
    append_scales(tensor, config.n_kv_heads, out);
  }
  for (const std::string_view rest : kZeroPoints) {
    const std::string name = names::layer(layer, rest);
    if (!checkpoint.contains(name)) continue;
    const Checkpoint::Tensor tensor = checkpoint.at(name);
    if (!std::ranges::all_of(tensor.bytes, [](std::byte b) { return b == std::byte{0}; }))
      out.problems.push_back(place_of(tensor) +
                             " is not zero: an E4M3 cache has scales and no zero points");
  }
}

// A scale under an unknown name would silently not be used.
void find_strangers(const ModelConfig& config, const Checkpoint& checkpoint, KvScales& out) {
  const std::vector<std::string> known = kv_scale_names(config);
  const std::set<std::string, std::less<>> names(known.begin(), known.end());
  for (const std::string& name : checkpoint.names()) {
    if (!name.ends_with(".k_scale") && !name.ends_with(".v_scale")) continue;
    if (!names.contains(name))
      out.problems.push_back(place_of(checkpoint.at(name)) +
                             " is a scale of keys or values in a place that has none; known: " +
                             names::layer(0, kSpellings.front().keys));
  }
}

bool has_any(const ModelConfig& config, const Checkpoint& checkpoint) {
  for (std::int32_t layer = 0; layer < config.n_layers; ++layer)
    if (spelling_of(checkpoint, layer)) return true;
  return false;
}

}  // namespace

std::vector<std::string> kv_scale_names(const ModelConfig& config) {
  std::vector<std::string> all;
  for (std::int32_t layer = 0; layer < config.n_layers; ++layer) {
    for (const Spelling& spelling : kSpellings) {
      all.push_back(names::layer(layer, spelling.keys));
      if (spelling.values != spelling.keys) all.push_back(names::layer(layer, spelling.values));
    }
    for (const std::string_view rest : kZeroPoints) all.push_back(names::layer(layer, rest));
    for (const std::string_view rest : kOfQueries) all.push_back(names::layer(layer, rest));
  }
  return all;
}

KvScales read_kv_scales(const ModelConfig& config, const Checkpoint& checkpoint) {
  KvScales out;
  if (!config.kv_scheme.unfit.empty()) return out;
  std::optional<std::int32_t> first_without;
  std::string first_with;
  for (std::int32_t layer = 0; layer < config.n_layers; ++layer) {
    const auto spelling = spelling_of(checkpoint, layer);
    if (!spelling) {
      if (!first_without) first_without = layer;
      continue;
    }
    for (const std::string_view half : {spelling->keys, spelling->values})
      if (const std::string name = names::layer(layer, half);
          first_with.empty() && checkpoint.contains(name))
        first_with = name;
    read_layer(config, checkpoint, layer, *spelling, out);
  }
  if (first_without && !first_with.empty())
    out.problems.push_back(place_of(checkpoint.at(first_with)) + " is there and layer " +
                           std::to_string(*first_without) + " has no such scale: all of " +
                           std::to_string(config.n_layers) + " layers have one, or none");
  find_strangers(config, checkpoint, out);
  return out;
}

std::string what_of_kv_scales(const ModelConfig& config,
                              const Checkpoint& checkpoint,
                              DType kv_dtype) {
  const bool any = has_any(config, checkpoint), scaled = kv_dtype == DType::kF8E4M3;
  const std::string& unfit = config.kv_scheme.unfit;
  if (any && !scaled)
    return std::string("not used: kv_cache.dtype is ") + dtype_name(kv_dtype) +
           (unfit.empty() ? ", not float8_e4m3" : "");
  if (any && !unfit.empty()) return "not used, all are 1: quantization_config." + unfit;
  if (any)
    return read_kv_scales(config, checkpoint).by_head ? "the model's, by KV head"
                                                      : "the model's, by layer";
  if (scaled && config.kv_scheme.is_given)
    return "all are 1: quantization_config.kv_cache_scheme is set, and the folder has none";
  return scaled ? "all are 1" : "";
}

}  // namespace foretoken
