// import-triton: the work is done by a program beside this one, which has protobuf.
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iostream>

#include "common/config/resolve.h"
#include "services/cli/verbs.h"

namespace foretoken::cli {

int run_import_triton(const CliOptions& options) {
  std::vector<std::string> words = {program_folder() + "/foretoken-import-triton"};
  words.insert(words.end(), options.files.begin(), options.files.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::execv(arguments.front(), arguments.data());
  const int cause = errno;  // writing may change it
  std::cerr << "error: " << words.front() << " cannot be run: " << std::strerror(cause) << "\n";
  return kExitFailed;
}

}  // namespace foretoken::cli
