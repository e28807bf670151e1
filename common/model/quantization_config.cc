#include "common/model/quantization_config.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/result.h"
#include "common/model/int4.h"

namespace foretoken {
namespace {

class Reader {
 public:
  // owner: the member of the file's object whose members are read, "" for the object itself.
  explicit Reader(const std::string& file, const std::string& owner = "quantization_config")
      : file_(file), owner_(owner) {}

  [[noreturn]] void refuse(const std::string& key, const std::string& sentence) const {
    throw FatalError(ErrorCode::kUnsupportedModel, file_ + ": " + name_of(key) + " " + sentence);
  }
  [[noreturn]] void malformed(const std::string& key, const std::string& sentence) const {
    throw FatalError(ErrorCode::kMalformed, file_ + ": " + name_of(key) + " " + sentence);
  }
  // A member that is there and not null.
  static const Json* find(const Json& object, const char* key) {
    const auto found = object.find(key);
    return found == object.end() || found->is_null() ? nullptr : &*found;
  }
  std::string text(const Json& object,
                   const std::string& prefix,
                   const char* key,
                   const std::string& otherwise) const {
    const Json* value = find(object, key);
    if (value == nullptr) return otherwise;
    if (!value->is_string()) malformed(prefix + key, "must be a string");
    return value->get<std::string>();
  }
  bool flag(const Json& object, const std::string& prefix, const char* key, bool otherwise) const {
    const Json* value = find(object, key);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) malformed(prefix + key, "must be true or false");
    return value->get<bool>();
  }

 private:
  std::string name_of(const std::string& key) const {
    if (owner_.empty()) return key.empty() ? "the whole" : key;
    return key.empty() ? owner_ : owner_ + "." + key;
  }

  const std::string& file_;
  std::string owner_;
};

std::string shown(const Json& value) { return to_text(value).substr(0, 60); }

struct Scheme {
  DType dtype = DType::kI8;
  std::int64_t group = 0;  // of kI4
  Int4Zeros zeros = Int4Zeros::kEight;
};

// A number of weights that can be held in groups. A number beyond int64 is none either.
std::int64_t stored_group_of(const Json& size, const std::string& key, const Reader& reader) {
  const auto group = size.is_number_unsigned() && size.get<std::uint64_t>() > kWholeRow
                         ? 0
                         : size.get<std::int64_t>();
  if (!is_stored_int4_group(group))
    reader.refuse(key, "is " + shown(size) + "; supported: 32, 64 and multiples of 128");
  return group;
}

// Of four bits: {"strategy": "group", "group_size": 128, "actorder": null, …}. An order of columns
// that is already in the weights ("weight", "static") needs nothing; another one has a tensor
// beside.
std::int64_t int4_group_of(const Json& weights,
                           const std::string& dot,
                           const std::string& strategy,
                           const Reader& reader) {
  if (const Json* order = Reader::find(weights, "actorder");
      order && *order != "weight" && *order != "static" && *order != false)
    reader.refuse(dot + "actorder", "is " + shown(*order) + "; supported: null, \"weight\"");
  if (strategy == "channel") return kWholeRow;
  if (strategy != "group")
    reader.refuse(dot + "strategy",
                  "is \"" + strategy.substr(0, 40) + "\"; supported for 4 bits: group, channel");
  const Json* size = Reader::find(weights, "group_size");
  if (size == nullptr || !size->is_number_integer())
    reader.malformed(dot + "group_size", "must be a whole number with strategy \"group\"");
  return stored_group_of(*size, dot + "group_size", reader);
}

// {"num_bits": 8, "type": "int", "symmetric": true, "strategy": "channel", "dynamic": false, …}
Scheme scheme_of(const Json& weights, const std::string& prefix, const Reader& reader) {
  if (!weights.is_object()) reader.malformed(prefix, "must be an object");
  const std::string dot = prefix + ".";
  const Json* bits = Reader::find(weights, "num_bits");
  if (bits == nullptr || !bits->is_number_integer() || (*bits != 8 && *bits != 4))
    reader.refuse(dot + "num_bits",
                  "is " + (bits ? shown(*bits) : "missing") + "; supported: 4, 8");
  const bool symmetric = reader.flag(weights, dot, "symmetric", true);
  if (!symmetric && *bits == 8)
    reader.refuse(dot + "symmetric", "is false; supported for 8 bits: true");
  if (const Json* dynamic = Reader::find(weights, "dynamic"); dynamic && *dynamic != false)
    reader.refuse(dot + "dynamic", "is " + shown(*dynamic) + "; supported: false");
  const std::string type = reader.text(weights, dot, "type", "int"),
                    strategy = reader.text(weights, dot, "strategy", "tensor");
  if (*bits == 4) {
    if (type != "int")
      reader.refuse(dot + "type", "is \"" + type.substr(0, 40) + "\"; supported for 4 bits: int");
    return {DType::kI4, int4_group_of(weights, dot, strategy, reader),
            symmetric ? Int4Zeros::kEight : Int4Zeros::kOfGroup};
  }
  if (strategy != "channel" && strategy != "tensor")
    reader.refuse(dot + "strategy",
                  "is \"" + strategy.substr(0, 40) + "\"; supported for 8 bits: channel, tensor");
  if (type == "int") return {DType::kI8};
  if (type == "float") return {DType::kF8E4M3};
  reader.refuse(dot + "type", "is \"" + type.substr(0, 40) + "\"; supported: int, float");
}

QuantisedTypes groups_of(const Json& value, const Reader& reader) {
  QuantisedTypes types;
  const Json* groups = Reader::find(value, "config_groups");
  if (groups == nullptr) return types;
  if (!groups->is_object()) reader.malformed("config_groups", "must be an object");
  for (const auto& [name, group] : groups->items()) {
    const std::string prefix = "config_groups." + name.substr(0, 40);
    if (!group.is_object()) reader.malformed(prefix, "must be an object");
    const Json* weights = Reader::find(group, "weights");
    if (weights == nullptr) continue;
    const Scheme found = scheme_of(*weights, prefix + ".weights", reader);
    if (found.dtype == DType::kI4) {
      if (types.int4_group != 0 && types.int4_group != found.group)
        reader.refuse(prefix + ".weights.group_size",
                      "differs from another group's; supported: one for all of 4 bits");
      if (types.int4_group != 0 && types.int4_zeros != found.zeros)
        reader.refuse(prefix + ".weights.symmetric",
                      "differs from another group's; supported: one for all of 4 bits");
      types.int4_group = found.group;
      types.int4_zeros = found.zeros;
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
KvScheme kv_scheme_of(const Json& value, const Reader& reader) {
  const Json* scheme = Reader::find(value, "kv_cache_scheme");
  if (scheme == nullptr) return {};
  if (!scheme->is_object()) reader.malformed("kv_cache_scheme", "must be an object");
  const auto member = [&](const char* key, const Json& otherwise) {
    const Json* found = Reader::find(*scheme, key);
    return found == nullptr ? otherwise : *found;
  };
  const auto unfit = [](const std::string& key, const Json& is) {
    return KvScheme{true, "kv_cache_scheme." + key + " is " + shown(is)};
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

// The first of several keys that is there: writers do not agree on them. Lower case.
std::string first_text(const Json& value,
                       std::span<const char* const> keys,
                       const std::string& otherwise,
                       const Reader& reader) {
  for (const char* key : keys)
    if (Reader::find(value, key) != nullptr) {
      std::string text = reader.text(value, "", key, otherwise);
      std::ranges::transform(text, text.begin(), [](char c) {
        return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
      });
      return text;
    }
  return otherwise;
}

// What AutoGPTQ's and AutoAWQ's settings share. -1: a scale for each output.
std::int64_t group_of_words(const Json& value, const Reader& reader) {
  const Json* bits = Reader::find(value, "bits");
  if (bits == nullptr || !bits->is_number_integer() || *bits != 4)
    reader.refuse("bits", "is " + (bits ? shown(*bits) : "missing") + "; supported: 4");
  const Json* size = Reader::find(value, "group_size");
  if (size == nullptr || !size->is_number_integer())
    reader.malformed("group_size", "must be a whole number");
  return *size == -1 ? kWholeRow : stored_group_of(*size, "group_size", reader);
}

// {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": true, "desc_act": false, …}.
// Whether the order of inputs that desc_act is about matters is seen from the tensors.
QuantisedTypes gptq_types(const Json& value, const Reader& reader) {
  static constexpr std::array kFormatKeys{"checkpoint_format", "format"};
  const std::string format = first_text(value, kFormatKeys, "gptq", reader);
  if (format != "gptq" && format != "gptq_v2")
    reader.refuse("checkpoint_format",
                  "is \"" + format.substr(0, 40) + "\"; supported: gptq, gptq_v2");
  if (reader.flag(value, "", "is_marlin_format", false))
    reader.refuse("is_marlin_format", "is true; supported: false");
  if (const std::string pack = reader.text(value, "", "pack_dtype", "int32"); pack != "int32")
    reader.refuse("pack_dtype", "is \"" + pack.substr(0, 40) + "\"; supported: int32");
  const Json* dynamic = Reader::find(value, "dynamic");
  if (dynamic && *dynamic != false && !dynamic->is_object())
    reader.malformed("dynamic", "must be an object");
  if (dynamic && dynamic->is_object())
    for (const auto& [pattern, settings] : dynamic->items())
      if (!pattern.starts_with("-:"))
        reader.refuse("dynamic",
                      "gives \"" + pattern.substr(0, 40) +
                          "\" settings of its own; supported: modules left alone (\"-:\")");
  const bool symmetric = reader.flag(value, "", "sym", true);
  return {.int4_group = group_of_words(value, reader),
          .int4_zeros = symmetric ? Int4Zeros::kEight : Int4Zeros::kOfGroup,
          .int4_layout = format == "gptq" ? Int4Layout::kGptq : Int4Layout::kGptqV2};
}

// {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": true, "version": "gemm", …}
QuantisedTypes awq_types(const Json& value, const Reader& reader) {
  static constexpr std::array kVersionKeys{"version", "checkpoint_format", "format"};
  const std::string version = first_text(value, kVersionKeys, "gemm", reader);
  if (version != "gemm")
    reader.refuse("version", "is \"" + version.substr(0, 40) + "\"; supported: gemm");
  if (!reader.flag(value, "", "zero_point", true))
    reader.refuse("zero_point", "is false; supported: true");
  return {.int4_group = group_of_words(value, reader),
          .int4_zeros = Int4Zeros::kOfGroup,
          .int4_layout = Int4Layout::kAwq};
}

Quantization parse_with(const Json& value, const Reader& reader) {
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
  static constexpr std::array<std::string_view, 6> kFormats{"int-quantized",   "float-quantized",
                                                            "naive-quantized", "pack-quantized",
                                                            "mixed-precision", "dense"};
  const std::string format = reader.text(value, "", "format", "dense");
  if (std::ranges::find(kFormats, format) == kFormats.end())
    reader.refuse("format", "is \"" + format.substr(0, 40) +
                                "\"; supported: int-quantized, float-quantized, naive-quantized, "
                                "pack-quantized, mixed-precision, dense");
  if (const Json* transform = Reader::find(value, "transform_config");
      transform && !transform->empty())
    reader.refuse("transform_config",
                  "is set: rotations of weights and activations are not supported");
  if (const Json* sparsity = Reader::find(value, "sparsity_config");
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
  return parse_with(value, Reader(file));
}

Quantization parse_separate_quantization(const SeparateQuantizationFile& file,
                                         const Json& value,
                                         const std::string& path) {
  const Reader reader(path, "");
  if (!value.is_object()) reader.malformed("", "must be an object");
  return parse_with(with_common_names(value, file.method), reader);
}

Json quantization_json(std::span<const QuantisedModules> modules,
                       std::span<const std::string> ignore) {
  const bool is_packed =
      std::ranges::any_of(modules, [](const auto& m) { return m.dtype == DType::kI4; });
  const auto format_of = [&](DType dtype) {
    if (dtype == DType::kF8E4M3) return "float-quantized";
    return is_packed ? "pack-quantized" : "int-quantized";
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
