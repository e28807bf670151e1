// draft distil: the work is done by a Python package of the recipe (models/recipe/distil), which
// has PyTorch; here are its words, checked, and where it lies. Nothing of it is needed for serving.
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>

#include "common/config/resolve.h"
#include "services/cli/verbs.h"

namespace foretoken::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kWidthGrain = 32;  // a head's dimension

// Of an installation, or of the sources of a build.
std::string package_folder() {
  const fs::path self = program_folder();
  const fs::path places[] = {self / "../share/foretoken/recipe/distil",
                             self / "../../../models/recipe/distil"};
  std::error_code error;
  for (const fs::path& place : places)
    if (fs::exists(place / "__main__.py", error))
      return fs::weakly_canonical(place, error).string();
  throw FatalError(ErrorCode::kConfig,
                   "draft distil needs its Python files, which are neither in " +
                       places[0].lexically_normal().string() + " nor in " +
                       places[1].lexically_normal().string());
}

// "192x3": 192 wide, three layers.
void check_shape(const std::string& shape) {
  int hidden = 0, layers = 0;
  const char* end = shape.data() + shape.size();
  const auto [cross, wrong] = std::from_chars(shape.data(), end, hidden);
  bool is_shape = wrong == std::errc() && cross != end && *cross == 'x';
  if (is_shape) {
    const auto [last, error] = std::from_chars(cross + 1, end, layers);
    is_shape = error == std::errc() && last == end;
  }
  if (!is_shape || hidden < kWidthGrain || hidden > 4096 || hidden % kWidthGrain != 0 ||
      layers < 1 || layers > 64)
    throw FatalError(ErrorCode::kConfig, "--shape is \"" + shape +
                                             "\"; it must be a width, x and layers, as 192x3: a "
                                             "multiple of 32 from 32 to 4096, and 1 to 64 layers");
}

std::vector<std::string> words_of(const CliOptions& options, const std::string& package) {
  const DistilOptions& d = options.distil;
  std::vector<std::string> words{d.python, package + "/__main__.py"};
  const auto add = [&](const char* flag, const std::string& value) {
    words.insert(words.end(), {flag, value});
  };
  add("--target", fs::absolute(model_folder(d.target, "target")).lexically_normal().string());
  add("--out", fs::absolute(d.out).lexically_normal().string());
  add("--program", program_folder() + "/foretoken");
  if (!d.prompts.empty()) add("--prompts", fs::absolute(d.prompts).string());
  if (!options.config.host.empty()) add("--host", options.config.host);
  add("--tokens", std::to_string(d.tokens));
  add("--answer-tokens", std::to_string(d.answer_tokens));
  add("--top", std::to_string(d.top));
  add("--shape", d.shape);
  add("--head", std::to_string(d.head));
  add("--passes", std::to_string(d.passes));
  add("--hours", std::to_string(d.hours));
  add("--context", std::to_string(d.context));
  add("--dtype", d.dtype);
  add("--concurrency", std::to_string(d.concurrency));
  add("--threads", std::to_string(d.threads));
  add("--seed", std::to_string(d.seed));
  if (options.output.quiet) words.emplace_back("--quiet");
  return words;
}

}  // namespace

int run_draft_distil(const CliOptions& options) {
  check_shape(options.distil.shape);
  std::vector<std::string> words = words_of(options, package_folder());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::setenv("PYTHONDONTWRITEBYTECODE", "1", 1);
  ::execvp(arguments.front(), arguments.data());
  const int cause = errno;  // writing may change it
  std::cerr << "error: --python: " << words.front() << " cannot be run: " << std::strerror(cause)
            << "\n";
  return kExitEnvironment;
}

}  // namespace foretoken::cli
