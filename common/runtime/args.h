// The command line of a service: flags into plain data. Uses CLI11 (in the .cc), and works around
// its reading of an empty value.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace foretoken {

// A flag of one service alone.
struct ServiceSwitch {
  std::string flag;  // "--memory"
  std::string help;
  bool* is_on = nullptr;  // set where it is given
};

struct Args {
  std::optional<std::string> config_file;
  std::string id = "0";
  std::vector<std::string> settings;  // --set section.key=value
  bool check_config = false;
  bool print_config = false;
  bool version = false;
};

// Arguments, or the exit code if there is nothing more to do (help printed: 0; usage printed: 64).
struct ParsedArgs {
  std::optional<Args> args;
  int exit_code = 0;
};

ParsedArgs parse_args(const std::string& program,
                      const std::string& summary,
                      int argc,
                      char** argv,
                      const std::vector<ServiceSwitch>& switches = {});

// `words`, a line behind the program's name, with "--draft=" as the words "--draft" and "" where
// the verb of `app` that the line names has such an option and it takes a value. CLI11 takes an
// empty value behind '=' for none, and the next word of the line in its place.
std::vector<std::string> separate_empty_values(const CLI::App& app,
                                               const std::vector<std::string>& words);

}  // namespace foretoken
