// What may stand at the cursor of a half-written command line, from the option tree. The scripts of
// bash, zsh and fish (completion_scripts.cc) ask `foretoken complete` at every Tab and know no flag
// themselves.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "services/cli/options.h"

namespace CLI {
class App;
}

namespace foretoken::cli {

struct Candidate {
  std::string word;
  std::string meaning;
};

// Names of models that are served now; given the --config and --set of the line.
using AskModels = std::function<std::vector<std::string>(const ConfigOptions&)>;

// `words`: the line behind "foretoken" up to the cursor, the last of them unfinished, perhaps
// empty.
std::vector<Candidate> candidates(CLI::App& app,
                                  const std::vector<std::string>& words,
                                  const AskModels& ask_models);

// Prints them, a line each, "word<Tab>meaning". A server that does not answer within 50 ms has no
// names.
int run_complete(CLI::App& app, const std::vector<std::string>& words);

}  // namespace foretoken::cli
