// The quantization_config of a config.json, read and written in the form of compressed-tensors.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "common/base/json.h"
#include "kernels/include/types.h"

namespace foretoken {

// kI8 or kF8E4M3: what the linears of `quantization_config` are stored in; nothing if it says that
// they are not quantised. Throws FatalError(kUnsupportedModel | kMalformed) naming `file`, key and
// finding. Quantisation of activations is read and not followed: products here take 16-bit inputs
// (fp8) or round them per row (int8), which is as close or closer to the float model.
std::optional<DType> parse_quantization(const Json& value, const std::string& file);

// The same as a value for config.json; what `foretoken model quantize` writes. `ignore` names the
// modules left as they are: "lm_head".
Json quantization_json(DType dtype, std::span<const std::string> ignore);

}  // namespace foretoken
