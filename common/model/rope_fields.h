// RoPE in a config.json, in the old spelling and the new.
#pragma once

#include <cstdint>

#include "common/model/config.h"
#include "common/model/config_fields.h"

namespace foretoken {

// max_positions: max_position_embeddings. Throws FatalError(kMalformed | kUnsupportedModel).
RopeSpec read_rope(const ConfigFields& fields, std::int64_t max_positions);

}  // namespace foretoken
