// "Did you mean": the known word nearest to a mistyped one, if any is near.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace foretoken {

std::optional<std::string> nearest(const std::string& word, const std::vector<std::string>& known);

}  // namespace foretoken
