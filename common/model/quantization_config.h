// The quantization_config of a config.json: read as compressed-tensors, AutoGPTQ, GPTQModel and
// AutoAWQ write it, and written in the form of the first.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/model/config.h"
#include "kernels/include/types.h"

namespace foretoken {

struct Quantization {
  QuantisedTypes linears = {};
  KvScheme kv = {};
};

// What `quantization_config` says. Throws FatalError(kUnsupportedModel | kMalformed) naming `file`,
// key and finding. Quantisation of activations is read and not followed: products here take 16-bit
// inputs (fp8) or round them per row (int8), which is as close or closer to the float model. How K
// and V are kept is the operator's choice: a scheme only says what the scales are for. Which
// linears a group means is not read: the tensors say in what they are stored.
Quantization parse_quantization(const Json& value, const std::string& file);

// Files of their own beside config.json in which older writers keep the same, under names that
// differ in part; read where config.json says nothing.
struct SeparateQuantizationFile {
  const char* name = nullptr;
  const char* method = nullptr;  // quant_method, where the file has none
};
inline constexpr std::array kSeparateQuantizationFiles{
    SeparateQuantizationFile{"quantize_config.json", "gptq"},  // AutoGPTQ
    SeparateQuantizationFile{"quant_config.json", "awq"}};     // AutoAWQ

// The same of such a file, whose content is `value`; errors name `path`.
Quantization parse_separate_quantization(const SeparateQuantizationFile& file,
                                         const Json& value,
                                         const std::string& path);

// Modules that are stored alike, as quantization_json takes them.
struct QuantisedModules {
  DType dtype = DType::kI8;          // kI8, kF8E4M3 or kI4
  std::int64_t group = 0;            // of kI4
  std::vector<std::string> targets;  // "Linear", "lm_head", "re:.*[.]mlp[.]down_proj$"
};

// The same as a value for config.json; what `foretoken model quantize` writes: integers are packed
// into words. `ignore` names the modules left as they are: "lm_head".
Json quantization_json(std::span<const QuantisedModules> modules,
                       std::span<const std::string> ignore);

}  // namespace foretoken
