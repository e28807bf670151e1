// What no single key can know: keys that do not go together, or hardly, and models that do not.
// Pure.
#pragma once

#include <string>
#include <vector>

#include "common/config/load.h"

namespace foretoken {

// One sentence each, for values that are good by themselves.
void check_together(const LoadedConfig& loaded, std::vector<std::string>& errors);

// One sentence each, for values that can be served with and hardly do what was meant.
std::vector<std::string> doubts_about(const LoadedConfig& loaded);

}  // namespace foretoken
