// `foretoken help --man`: manual pages from the option tree, the key tables and the services beside
// the command.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace foretoken::cli {

// "foretoken", "foretoken-up", "foretoken-bench-serve", ..., "foretoken.toml", and each service
// beside the command.
std::vector<std::string> manual_names(CLI::App& app);
// Prints the page that the words name, as verbs ("bench", "serve"; none: the command) or as man(1)
// calls it
// ("foretoken-bench-serve"). Returns the exit code.
int print_manual(CLI::App& app, const std::vector<std::string>& words);

}  // namespace foretoken::cli
