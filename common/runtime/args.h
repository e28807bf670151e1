// The command line of a service: flags into plain data. The only place that knows CLI11.
#pragma once

#include <optional>
#include <string>
#include <vector>

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

}  // namespace foretoken
