// The settings of folders in four bits that AutoGPTQ, GPTQModel and AutoAWQ write; int4_words.h has
// the words that they are about.
#pragma once

#include "common/base/json.h"
#include "common/model/config.h"
#include "common/model/quantization_reader.h"

namespace foretoken {

// {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": true, "desc_act": false, …}.
// Whether the order of inputs that desc_act is about matters is seen from the tensors.
QuantisedTypes gptq_types(const Json& value, const QuantizationReader& reader);

// {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": true, "version": "gemm", …}
QuantisedTypes awq_types(const Json& value, const QuantizationReader& reader);

}  // namespace foretoken
