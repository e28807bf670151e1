// The quantization_config of a config.json, read and written in the form of compressed-tensors.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "common/base/json.h"
#include "common/model/config.h"
#include "kernels/include/types.h"

namespace foretoken {

struct Quantization {
  std::optional<DType> linears = {};  // kI8 or kF8E4M3; nothing: they are not quantised
  KvScheme kv = {};
};

// What `quantization_config` says. Throws FatalError(kUnsupportedModel | kMalformed) naming `file`,
// key and finding. Quantisation of activations is read and not followed: products here take 16-bit
// inputs (fp8) or round them per row (int8), which is as close or closer to the float model. How K
// and V are kept is the operator's choice: a scheme only says what the scales are for.
Quantization parse_quantization(const Json& value, const std::string& file);

// The same as a value for config.json; what `foretoken model quantize` writes. `ignore` names the
// modules left as they are: "lm_head".
Json quantization_json(DType dtype, std::span<const std::string> ignore);

}  // namespace foretoken
