#include "services/cli/model_storage.h"

#include <algorithm>

#include "common/model/held_weights.h"
#include "kernels/include/backend.h"

namespace foretoken::cli {
namespace {

std::string method_of(const QuantisedTypes& types) {
  switch (types.int4_layout) {
    case Int4Layout::kRows:
      return "compressed-tensors";
    case Int4Layout::kGptq:
      return "gptq";
    case Int4Layout::kGptqV2:
      return "gptq_v2";
    case Int4Layout::kAwq:
      return "awq";
  }
  return "?";
}

// The others that a CPU holds the folder with: "\"float32\", \"bfloat16\"".
std::string other_dtypes(const ModelInfo& info, WeightDType dtype) {
  std::string names;
  for (const WeightDType other : kWeightDTypes)
    if (other != dtype && other != WeightDType::kAuto && !info.not_held.contains(other))
      names += (names.empty() ? "\"" : ", \"") + std::string(weight_dtype_name(other)) + "\"";
  return names;
}

}  // namespace

WeightDType configured_dtype(const LoadedConfig& loaded) {
  return weight_dtype_from_name(loaded.config.model.dtype).value_or(WeightDType::kAuto);
}

std::string quantised_as(const ModelInfo& info) {
  const QuantisedTypes& types = info.config.quantized;
  if (!types.any()) return {};
  std::string text = method_of(types) + ": ";
  if (types.int4_group != 0) {
    text += types.int4_group == kWholeRow ? "int4, a scale for each row"
                                          : "int4 in groups of " + std::to_string(types.int4_group);
    if (types.int4_kind == Int4Kind::kZeroPoints) text += " with zero points";
    if (types.int4_kind == Int4Kind::kE2m1) text += ", floats (mxfp4)";
    if (info.has_groups_out_of_order) text += ", groups out of order (desc_act)";
    if (types.in_8_bits) text += ", ";
  }
  return types.in_8_bits ? text + dtype_name(*types.in_8_bits) : text;
}

OrderedJson quantisation_json(const ModelInfo& info) {
  const QuantisedTypes& types = info.config.quantized;
  if (!types.any()) return nullptr;
  OrderedJson json{{"method", method_of(types)}, {"int4", nullptr}, {"in_8_bits", nullptr}};
  if (types.int4_group != 0)
    json["int4"] = {{"group", types.int4_group == kWholeRow ? 0 : types.int4_group},
                    {"zero_points", types.int4_kind == Int4Kind::kZeroPoints},
                    {"type", types.int4_kind == Int4Kind::kE2m1 ? "e2m1" : "int"},
                    {"in_order", !info.has_groups_out_of_order}};
  if (types.in_8_bits) json["in_8_bits"] = dtype_name(*types.in_8_bits);
  return json;
}

std::string held_as(const ModelInfo& info, WeightDType dtype) {
  return held_types(info.config, info.stored, dtype, info.checkpoint_dtype);
}

std::string dtype_needs(const ModelInfo& info, WeightDType dtype) {
  if (const auto why = info.not_held.find(dtype); why != info.not_held.end()) {
    const std::string others = other_dtypes(info, dtype);
    return "another model.dtype" + (others.empty() ? "" : " (" + others + ")") + ": " + why->second;
  }
  const bool fp8 = std::ranges::find(info.stored, DType::kF8E4M3) != info.stored.end();
  if (dtype != WeightDType::kAuto || !fp8 || make_backend({.n_threads = 1})->holds(DType::kF8E4M3))
    return {};
  return std::string("a GPU, or model.dtype = \"bfloat16\": its weights are ") +
         dtype_name(DType::kF8E4M3) + ", which CPUs do not multiply";
}

}  // namespace foretoken::cli
