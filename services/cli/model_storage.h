// How the weights of a folder are stored, and what model.dtype makes of them, for people and as
// JSON.
#pragma once

#include <string>

#include "common/base/json.h"
#include "common/config/load.h"
#include "common/model/pair.h"

namespace foretoken::cli {

// model.dtype of a configuration without declared models.
WeightDType configured_dtype(const LoadedConfig& loaded);

// "gptq: int4 in groups of 128 with zero points"; "" where no linear is quantised.
std::string quantised_as(const ModelInfo& info);
OrderedJson quantisation_json(const ModelInfo& info);  // null where none is

// "bfloat16 1, int4/32 60": how many matrices are in which type in memory.
std::string held_as(const ModelInfo& info, WeightDType dtype);

// What loading with `dtype` takes on a CPU beyond that dtype: another one, or a GPU; "" if nothing.
std::string dtype_needs(const ModelInfo& info, WeightDType dtype);

}  // namespace foretoken::cli
