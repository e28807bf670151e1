// The door to every device. The CPU is linked in; CUDA is a library of its own, opened when a
// configuration asks for it, so that programs start on machines that have never heard of a GPU.
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "common/base/result.h"
#include "kernels/cpu/backend.h"
#include "kernels/include/backend.h"

namespace foretoken {
namespace {

constexpr const char* kLibrary = "libforetoken_cuda.so";
constexpr const char* kVariable = "FORETOKEN_CUDA_LIBRARY";

using MakeFunction = Backend* (*)(const BackendOptions*);
using BuildFunction = const char* (*)();

[[noreturn]] void unavailable(const BackendOptions& options, const std::string& why) {
  throw FatalError(ErrorCode::kUnavailable,
                   "device \"" + options.device + "\" was asked for, but " + why);
}

// Files to try, best first. A file that the environment names is the only one.
std::vector<std::string> candidates() {
  if (const char* named = std::getenv(kVariable); named != nullptr && *named != '\0')
    return {named};
  std::error_code ignored;
  const auto folder = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  return {(folder / ".." / "lib" / kLibrary).lexically_normal().string(),
          (folder / ".." / "lib" / "foretoken" / kLibrary).lexically_normal().string(), kLibrary};
}

void* open_library(const BackendOptions& options, std::string& file) {
  std::string tried;
  for (const std::string& candidate : candidates()) {
    const bool is_path = candidate.find('/') != std::string::npos;
    if (is_path && !std::filesystem::exists(candidate)) {
      tried += (tried.empty() ? "" : ", ") + candidate;
      continue;
    }
    if (void* library = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL); library != nullptr) {
      file = candidate;
      return library;
    }
    if (is_path) unavailable(options, candidate + " cannot be loaded: " + dlerror());
    tried += (tried.empty() ? "" : ", ") + candidate;
  }
  unavailable(options, "the CUDA backend was not built or not installed: none of " + tried +
                           " exists (build it with: ninja foretoken_cuda; " + kVariable +
                           " names another place)");
}

template <class Function>
Function symbol(void* library, const char* name) {
  return reinterpret_cast<Function>(dlsym(library, name));
}

std::unique_ptr<Backend> make_cuda_backend(const BackendOptions& options) {
  const std::string index = options.device == "cuda" ? "0" : options.device.substr(5);
  if (index.empty() || index.size() > 3 ||
      !std::all_of(index.begin(), index.end(), [](char c) { return c >= '0' && c <= '9'; }))
    throw FatalError(ErrorCode::kConfig, "device \"" + options.device +
                                             "\" is not cuda or cuda:N with N from 0 to 999");
  std::string file;
  void* library = open_library(options, file);  // never closed: its code outlives every backend
  const auto build = symbol<BuildFunction>(library, "foretoken_cuda_build");
  const auto make = symbol<MakeFunction>(library, "foretoken_cuda_backend");
  if (build == nullptr || make == nullptr)
    unavailable(options, file + " is not a CUDA backend of this project");
  if (std::string(build()) != FORETOKEN_BUILD_TAG)
    unavailable(options, file + " was built from other sources (" + build() +
                             ") than this program (" + FORETOKEN_BUILD_TAG + "); build both again");
  try {
    return std::unique_ptr<Backend>(make(&options));
  } catch (const FatalError& error) {
    throw FatalError(error.code(), "device \"" + options.device + "\" was asked for, but " +
                                       error.what() + " (" + file + ")");
  }
}

}  // namespace

std::unique_ptr<Backend> make_backend(const BackendOptions& options) {
  if (options.device == "cpu") return cpu::make_backend(options);
  if (options.device == "cuda" || options.device.starts_with("cuda:"))
    return make_cuda_backend(options);
  throw FatalError(ErrorCode::kConfig,
                   "unknown device \"" + options.device + "\"; known are cpu, cuda and cuda:N");
}

}  // namespace foretoken
