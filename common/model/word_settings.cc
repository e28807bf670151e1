#include "common/model/word_settings.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>

namespace foretoken {
namespace {

// The first of several keys that is there: writers do not agree on them. Lower case.
std::string first_text(const Json& value,
                       std::span<const char* const> keys,
                       const std::string& otherwise,
                       const QuantizationReader& reader) {
  for (const char* key : keys)
    if (QuantizationReader::find(value, key) != nullptr) {
      std::string text = reader.text(value, "", key, otherwise);
      std::ranges::transform(text, text.begin(), [](char c) {
        return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
      });
      return text;
    }
  return otherwise;
}

// What AutoGPTQ's and AutoAWQ's settings share. -1: a scale for each output.
std::int64_t group_of_words(const Json& value, const QuantizationReader& reader) {
  const Json* bits = QuantizationReader::find(value, "bits");
  if (bits == nullptr || !bits->is_number_integer() || *bits != 4)
    reader.refuse("bits",
                  "is " + (bits ? QuantizationReader::shown(*bits) : "missing") + "; supported: 4");
  const Json* size = QuantizationReader::find(value, "group_size");
  if (size == nullptr || !size->is_number_integer())
    reader.malformed("group_size", "must be a whole number");
  return *size == -1 ? kWholeRow : stored_group_of(*size, "group_size", reader);
}

}  // namespace

QuantisedTypes gptq_types(const Json& value, const QuantizationReader& reader) {
  static constexpr std::array kFormatKeys{"checkpoint_format", "format"};
  const std::string format = first_text(value, kFormatKeys, "gptq", reader);
  if (format != "gptq" && format != "gptq_v2")
    reader.refuse("checkpoint_format",
                  "is \"" + format.substr(0, 40) + "\"; supported: gptq, gptq_v2");
  if (reader.flag(value, "", "is_marlin_format", false))
    reader.refuse("is_marlin_format", "is true; supported: false");
  if (const std::string pack = reader.text(value, "", "pack_dtype", "int32"); pack != "int32")
    reader.refuse("pack_dtype", "is \"" + pack.substr(0, 40) + "\"; supported: int32");
  const Json* dynamic = QuantizationReader::find(value, "dynamic");
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
          .int4_kind = symmetric ? Int4Kind::kOffset : Int4Kind::kZeroPoints,
          .int4_layout = format == "gptq" ? Int4Layout::kGptq : Int4Layout::kGptqV2};
}

QuantisedTypes awq_types(const Json& value, const QuantizationReader& reader) {
  static constexpr std::array kVersionKeys{"version", "checkpoint_format", "format"};
  const std::string version = first_text(value, kVersionKeys, "gemm", reader);
  if (version != "gemm")
    reader.refuse("version", "is \"" + version.substr(0, 40) + "\"; supported: gemm");
  if (!reader.flag(value, "", "zero_point", true))
    reader.refuse("zero_point", "is false; supported: true");
  return {.int4_group = group_of_words(value, reader),
          .int4_kind = Int4Kind::kZeroPoints,
          .int4_layout = Int4Layout::kAwq};
}

}  // namespace foretoken
