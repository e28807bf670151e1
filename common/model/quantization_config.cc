#include "common/model/quantization_config.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/result.h"
#include "common/model/int4.h"
#include "common/model/quantization_reader.h"
#include "common/model/word_settings.h"

namespace foretoken {
namespace {

struct Scheme {
  DType dtype = DType::kI8;
  std::int64_t group = 0;  // of kI4
  Int4Kind kind = Int4Kind::kOffset;
};

// An order of columns that is already in the weights ("weight", "static") needs nothing; another
// one has a tensor beside.
void check_order(const Json& weights, const std::string& dot, const QuantizationReader& reader) {
  if (const Json* order = QuantizationReader::find(weights, "actorder");
      order && *order != "weight" && *order != "static" && *order != false)
    reader.refuse(dot + "actorder",
                  "is " + QuantizationReader::shown(*order) + "; supported: null, \"weight\"");
}

// Of four bits: {"strategy": "group", "group_size": 128, "actorder": null, …}.
std::int64_t int4_group_of(const Json& weights,
                           const std::string& dot,
                           const std::string& strategy,
                           const QuantizationReader& reader) {
  if (strategy == "channel") return kWholeRow;
  if (strategy != "group")
    reader.refuse(dot + "strategy",
                  "is \"" + strategy.substr(0, 40) + "\"; supported for 4 bits: group, channel");
  const Json* size = QuantizationReader::find(weights, "group_size");
  if (size == nullptr || !size->is_number_integer())
    reader.malformed(dot + "group_size", "must be a whole number with strategy \"group\"");
  return stored_group_of(*size, dot + "group_size", reader);
}

// Floats of four bits with an exponent for each 32: {"type": "float", "strategy": "group",
// "group_size": 32, "scale_dtype": "torch.uint8", …}. Those with scales of eight bits (NVFP4) have
// groups of 16 and the strategy "tensor_group".
Scheme mxfp4_scheme(const Json& weights,
                    const std::string& dot,
                    const std::string& strategy,
                    const QuantizationReader& reader) {
  if (strategy != "group")
    reader.refuse(dot + "strategy", "is \"" + strategy.substr(0, 40) +
                                        "\"; supported for floats of 4 bits: group (MXFP4)");
  const Json* size = QuantizationReader::find(weights, "group_size");
  if (size == nullptr || !size->is_number_integer())
    reader.malformed(dot + "group_size", "must be a whole number with strategy \"group\"");
  if (*size != kMxfp4Group)
    reader.refuse(dot + "group_size", "is " + QuantizationReader::shown(*size) +
                                          "; supported for floats of 4 bits: 32 (MXFP4)");
  if (!reader.flag(weights, dot, "symmetric", true))
    reader.refuse(dot + "symmetric", "is false; supported for floats of 4 bits: true");
  const std::string scales = reader.text(weights, dot, "scale_dtype", "torch.uint8");
  if (scales != "torch.uint8")
    reader.refuse(dot + "scale_dtype", "is \"" + scales.substr(0, 40) +
                                           "\"; supported for floats of 4 bits: torch.uint8");
  return {DType::kI4, kMxfp4Group, Int4Kind::kE2m1};
}

// {"num_bits": 8, "type": "int", "symmetric": true, "strategy": "channel", "dynamic": false, …}
Scheme scheme_of(const Json& weights, const std::string& prefix, const QuantizationReader& reader) {
  if (!weights.is_object()) reader.malformed(prefix, "must be an object");
  const std::string dot = prefix + ".";
  const Json* bits = QuantizationReader::find(weights, "num_bits");
  if (bits == nullptr || !bits->is_number_integer() || (*bits != 8 && *bits != 4))
    reader.refuse(dot + "num_bits", "is " + (bits ? QuantizationReader::shown(*bits) : "missing") +
                                        "; supported: 4, 8");
  const bool symmetric = reader.flag(weights, dot, "symmetric", true);
  if (!symmetric && *bits == 8)
    reader.refuse(dot + "symmetric", "is false; supported for 8 bits: true");
  if (const Json* dynamic = QuantizationReader::find(weights, "dynamic");
      dynamic && *dynamic != false)
    reader.refuse(dot + "dynamic",
                  "is " + QuantizationReader::shown(*dynamic) + "; supported: false");
  const std::string type = reader.text(weights, dot, "type", "int"),
                    strategy = reader.text(weights, dot, "strategy", "tensor");
  if (*bits == 4) {
    check_order(weights, dot, reader);
    if (type == "float") return mxfp4_scheme(weights, dot, strategy, reader);
    if (type != "int")
      reader.refuse(dot + "type",
                    "is \"" + type.substr(0, 40) + "\"; supported for 4 bits: int, float");
    return {DType::kI4, int4_group_of(weights, dot, strategy, reader),
            symmetric ? Int4Kind::kOffset : Int4Kind::kZeroPoints};
  }
  if (strategy != "channel" && strategy != "tensor")
    reader.refuse(dot + "strategy",
                  "is \"" + strategy.substr(0, 40) + "\"; supported for 8 bits: channel, tensor");
  if (type == "int") return {DType::kI8};
  if (type == "float") return {DType::kF8E4M3};
  reader.refuse(dot + "type", "is \"" + type.substr(0, 40) + "\"; supported: int, float");
}

constexpr std::string_view kMxfp4Format = "mxfp4-pack-quantized";

// How codes are laid out, by compressed-tensors' names.
std::string read_format(const Json& value,
                        const std::string& dot,
                        const QuantizationReader& reader) {
  static constexpr std::array<std::string_view, 7> kFormats{
      "int-quantized",   "float-quantized", "naive-quantized", "pack-quantized",
      "mixed-precision", "dense",           kMxfp4Format};
  std::string format = reader.text(value, dot, "format", "dense");
  if (std::ranges::find(kFormats, format) == kFormats.end())
    reader.refuse(dot + "format",
                  "is \"" + format.substr(0, 40) +
                      "\"; supported: int-quantized, float-quantized, naive-quantized, "
                      "pack-quantized, mxfp4-pack-quantized, mixed-precision, dense");
  return format;
}

// A group's own format, where it has one.
void check_group_format(const Json& group,
                        const std::string& prefix,
                        const Scheme& scheme,
                        const QuantizationReader& reader) {
  if (QuantizationReader::find(group, "format") == nullptr) return;
  const std::string format = read_format(group, prefix + ".", reader);
  const bool is_mxfp4 = scheme.dtype == DType::kI4 && scheme.kind == Int4Kind::kE2m1;
  if (is_mxfp4 != (format == kMxfp4Format))
    reader.refuse(prefix + ".format", "is \"" + format + "\", and its weights are " +
                                          (is_mxfp4 ? "" : "no ") + "floats of 4 bits (MXFP4)");
}

QuantisedTypes groups_of(const Json& value, const QuantizationReader& reader) {
  QuantisedTypes types;
  const Json* groups = QuantizationReader::find(value, "config_groups");
  if (groups == nullptr) return types;
  if (!groups->is_object()) reader.malformed("config_groups", "must be an object");
  for (const auto& [name, group] : groups->items()) {
    const std::string prefix = "config_groups." + name.substr(0, 40);
    if (!group.is_object()) reader.malformed(prefix, "must be an object");
    const Json* weights = QuantizationReader::find(group, "weights");
    if (weights == nullptr) continue;
    const Scheme found = scheme_of(*weights, prefix + ".weights", reader);
    check_group_format(group, prefix, found, reader);
    if (found.dtype == DType::kI4) {
      if (types.int4_group != 0 && types.int4_group != found.group)
        reader.refuse(prefix + ".weights.group_size",
                      "differs from another group's; supported: one for all of 4 bits");
      if (types.int4_group != 0 && types.int4_kind != found.kind)
        reader.refuse(prefix + (types.int4_kind == Int4Kind::kE2m1 || found.kind == Int4Kind::kE2m1
                                    ? ".weights.type"
                                    : ".weights.symmetric"),
                      "differs from another group's; supported: one for all of 4 bits");
      types.int4_group = found.group;
      types.int4_kind = found.kind;
    } else {
      if (types.in_8_bits && *types.in_8_bits != found.dtype)
        reader.refuse(prefix + ".weights.type",
                      "differs from another group's; supported: one type for all of 8 bits");
      types.in_8_bits = found.dtype;
    }
  }
  return types;
}

// {"num_bits": 8, "type": "float", "symmetric": true, "strategy": "tensor", "dynamic": false, …}
KvScheme kv_scheme_of(const Json& value, const QuantizationReader& reader) {
  const Json* scheme = QuantizationReader::find(value, "kv_cache_scheme");
  if (scheme == nullptr) return {};
  if (!scheme->is_object()) reader.malformed("kv_cache_scheme", "must be an object");
  const auto member = [&](const char* key, const Json& otherwise) {
    const Json* found = QuantizationReader::find(*scheme, key);
    return found == nullptr ? otherwise : *found;
  };
  const auto unfit = [](const std::string& key, const Json& is) {
    return KvScheme{true, "kv_cache_scheme." + key + " is " + QuantizationReader::shown(is)};
  };
  const Json type = member("type", "int"), bits = member("num_bits", 8),
             strategy = member("strategy", "tensor"), symmetric = member("symmetric", true),
             dynamic = member("dynamic", false);
  if (type != "float") return unfit("type", type);
  if (bits != 8) return unfit("num_bits", bits);
  if (strategy != "tensor" && strategy != "attn_head") return unfit("strategy", strategy);
  if (symmetric != true) return unfit("symmetric", symmetric);
  if (dynamic != false) return unfit("dynamic", dynamic);
  return {.is_given = true};
}

Quantization parse_with(const Json& value, const QuantizationReader& reader) {
  if (!value.is_object()) reader.malformed("", "must be an object");
  const std::string method = reader.text(value, "", "quant_method", "compressed-tensors");
  if (method == "gptq") return {.linears = gptq_types(value, reader)};
  if (method == "awq") return {.linears = awq_types(value, reader)};
  if (method != "compressed-tensors") {
    reader.refuse("quant_method",
                  "is \"" + method.substr(0, 40) +
                      "\"; supported: compressed-tensors with weights of 8 or 4 bits, gptq and "
                      "awq with weights of 4 bits, or the float checkpoint with model.dtype int8 "
                      "or int4");
  }
  (void)read_format(value, "", reader);
  if (const Json* transform = QuantizationReader::find(value, "transform_config");
      transform && !transform->empty())
    reader.refuse("transform_config",
                  "is set: rotations of weights and activations are not supported");
  if (const Json* sparsity = QuantizationReader::find(value, "sparsity_config");
      sparsity && sparsity->is_object()) {
    const std::string kind = reader.text(*sparsity, "sparsity_config.", "format", "dense");
    if (kind != "dense")
      reader.refuse("sparsity_config.format",
                    "is \"" + kind.substr(0, 40) + "\"; supported: dense");
  }
  return {.linears = groups_of(value, reader), .kv = kv_scheme_of(value, reader)};
}

// AutoAWQ's own names beside those that config.json has. It has used AutoGPTQ's file, too.
Json with_common_names(Json value, const char* method) {
  const bool is_awq = value.contains("w_bit");
  for (const auto& [own, common] : {std::pair{"w_bit", "bits"}, {"q_group_size", "group_size"}})
    if (value.contains(own)) value[common] = value[own];
  if (!value.contains("quant_method")) value["quant_method"] = is_awq ? "awq" : method;
  return value;
}

}  // namespace

Quantization parse_quantization(const Json& value, const std::string& file) {
  return parse_with(value, QuantizationReader(file));
}

Quantization parse_separate_quantization(const SeparateQuantizationFile& file,
                                         const Json& value,
                                         const std::string& path) {
  const QuantizationReader reader(path, "");
  if (!value.is_object()) reader.malformed("", "must be an object");
  return parse_with(with_common_names(value, file.method), reader);
}

Json quantization_json(std::span<const QuantisedModules> modules,
                       std::span<const std::string> ignore) {
  // int-quantized is for activations of eight bits as well: vLLM refuses it without them.
  const auto format_of = [](DType dtype) {
    return dtype == DType::kF8E4M3 ? "float-quantized" : "pack-quantized";
  };
  Json groups = Json::object();
  for (const QuantisedModules& m : modules) {
    Json weights{{"num_bits", m.dtype == DType::kI4 ? 4 : 8},
                 {"type", m.dtype == DType::kF8E4M3 ? "float" : "int"},
                 {"symmetric", true},
                 {"strategy", m.dtype == DType::kI4 ? "group" : "channel"},
                 {"dynamic", false}};
    if (m.dtype == DType::kI4) weights["group_size"] = m.group;
    groups["group_" + std::to_string(groups.size())] = {{"targets", m.targets},
                                                        {"format", format_of(m.dtype)},
                                                        {"input_activations", nullptr},
                                                        {"output_activations", nullptr},
                                                        {"weights", std::move(weights)}};
  }
  return {{"quant_method", "compressed-tensors"},
          {"format", format_of(modules.front().dtype)},
          {"quantization_status", "compressed"},
          {"ignore", std::vector<std::string>(ignore.begin(), ignore.end())},
          {"kv_cache_scheme", nullptr},
          {"config_groups", std::move(groups)}};
}

}  // namespace foretoken
