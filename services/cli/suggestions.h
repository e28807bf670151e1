// "Did you mean": what a command line says that the option tree does not have, and what is nearest
// to it.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace foretoken::cli {

// Whether `words`, the line behind "foretoken", names a verb that there is not; then stderr says
// so.
bool report_unknown_verb(CLI::App& app, const std::vector<std::string>& words);
// The same for an option of its verb.
bool report_unknown_option(CLI::App& app, const std::vector<std::string>& words);

}  // namespace foretoken::cli
