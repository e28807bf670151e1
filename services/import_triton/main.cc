// foretoken-import-triton FILE...: what `foretoken import-triton` runs, which has the help and the
// manual page.
#include <filesystem>
#include <fstream>
#include <iostream>

#include "common/config/resolve.h"
#include "services/import_triton/import_triton.h"

namespace {

using namespace foretoken;
using namespace foretoken::import_triton;

constexpr std::size_t kMaxFileBytes = std::size_t{1} << 20;
constexpr int kExitUsage = 2;  // as the command has it

Result<std::string> read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text(kMaxFileBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!in.eof()) {
    const bool is_long = in.good();
    return Error{ErrorCode::kConfig,
                 is_long ? "has more than " + std::to_string(kMaxFileBytes) + " bytes, the limit"
                         : "cannot be read"};
  }
  text.resize(static_cast<std::size_t>(in.gcount()));
  return text;
}

Result<TritonConfig> read_config(const std::string& path) {
  const auto text = read_file(path);
  if (!text.ok()) return text.error();
  auto config = parse_triton_config(*text);
  // Triton takes the name of the folder where a file says none.
  if (config.ok() && config->name.empty())
    config->name = name_of_folder(std::filesystem::absolute(path).parent_path());
  return config;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<TritonConfig> configs;
  for (int i = 1; i < argc; ++i) {
    auto config = read_config(argv[i]);
    if (!config.ok()) {
      std::cerr << "error: " << argv[i] << ": " << config.error().message << "\n";
      return kExitUsage;
    }
    configs.push_back(std::move(*config));
  }
  if (configs.empty()) {
    std::cerr << "error: no file is named; see foretoken import-triton --help\n";
    return kExitUsage;
  }
  std::cout << imported_toml(configs) << std::flush;
  return std::cout ? 0 : 1;
}
