// The manual page of a program or verb, from its own option tree: what `--help` says, for man(1).
// Knows CLI11 (in the .cc) and roff; not what the options do.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace CLI {
class App;
}

namespace foretoken {

struct ManualHead {
  std::string name;     // of the page: "foretoken-bench-serve"
  std::string command;  // as it is typed: "foretoken bench serve"
  int section = 1;
  std::vector<std::pair<std::string, int>> see_also;
};

// "Foretoken 0.1.0"
std::string release_name();
std::string manual_page(CLI::App& app, const ManualHead& head);

}  // namespace foretoken
