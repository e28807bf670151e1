// Triton model configurations -> our configuration file. Each of their keys becomes a key of ours
// or is named as left out with the reason.
#pragma once

#include <string>
#include <vector>

#include "services/import_triton/triton_config.h"

namespace foretoken::import_triton {

// TOML, in which comments say where each value comes from and what was left out. What it sets is
// valid: a value out of our range is left out.
std::string imported_toml(const std::vector<TritonConfig>& configs);

}  // namespace foretoken::import_triton
