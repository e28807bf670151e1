// Checks of several keys together: those that exclude each other or have no effect, and models that
// do not fit. Pure.
#pragma once

#include <string>
#include <vector>

#include "common/config/load.h"

namespace foretoken {

// One sentence each, for values that are good by themselves.
void check_together(const LoadedConfig& loaded, std::vector<std::string>& errors);

// One sentence each, for values that can be served with and have no effect.
std::vector<std::string> warnings_about(const LoadedConfig& loaded);

}  // namespace foretoken
