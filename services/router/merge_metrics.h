// Several services' Prometheus texts as one valid text: each family once, all its samples together.
#pragma once

#include <string>
#include <vector>

namespace foretoken {

std::string merge_metrics(const std::vector<std::string>& texts);

}  // namespace foretoken
