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
#include "kernels/include/device_identity.h"

namespace foretoken {
namespace {

constexpr const char* kLibrary = "libforetoken_cuda.so";
constexpr const char* kVariable = "FORETOKEN_CUDA_LIBRARY";

using MakeFunction = Backend* (*)(const BackendOptions*);
using BuildFunction = const char* (*)();
using IdentityFunction = void (*)(const std::string* device, std::string* identity);

[[noreturn]] void unavailable(const std::string& device, const std::string& why) {
  throw FatalError(ErrorCode::kUnavailable, "device \"" + device + "\" was asked for, but " + why);
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

void* open_library(const std::string& device, std::string& file) {
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
    if (is_path) unavailable(device, candidate + " cannot be loaded: " + dlerror());
    tried += (tried.empty() ? "" : ", ") + candidate;
  }
  unavailable(device, "the CUDA backend was not built or not installed: none of " + tried +
                          " exists (build it with: ninja foretoken_cuda; " + kVariable +
                          " names another place)");
}

template <class Function>
Function symbol(void* library, const char* name) {
  return reinterpret_cast<Function>(dlsym(library, name));
}

bool is_cuda(const std::string& device) { return device == "cuda" || device.starts_with("cuda:"); }

struct Library {
  std::string file;
  MakeFunction make = nullptr;
  IdentityFunction identity = nullptr;
};

// Never closed: its code outlives every backend.
Library cuda_library(const std::string& device) {
  const std::string index = device == "cuda" ? "0" : device.substr(5);
  if (index.empty() || index.size() > 3 ||
      !std::all_of(index.begin(), index.end(), [](char c) { return c >= '0' && c <= '9'; }))
    throw FatalError(ErrorCode::kConfig,
                     "device \"" + device + "\" is not cuda or cuda:N with N from 0 to 999");
  Library library;
  void* const opened = open_library(device, library.file);
  const auto build = symbol<BuildFunction>(opened, "foretoken_cuda_build");
  library.make = symbol<MakeFunction>(opened, "foretoken_cuda_backend");
  library.identity = symbol<IdentityFunction>(opened, "foretoken_cuda_identity");
  if (build == nullptr)
    unavailable(device, library.file + " is not a CUDA backend of this project");
  if (std::string(build()) != FORETOKEN_BUILD_TAG)
    unavailable(device, library.file + " was built from other sources (" + build() +
                            ") than this program (" + FORETOKEN_BUILD_TAG + "); build both again");
  if (library.make == nullptr || library.identity == nullptr)
    unavailable(device, library.file + " lacks a part; build it again");
  return library;
}

std::unique_ptr<Backend> make_cuda_backend(const BackendOptions& options) {
  const Library library = cuda_library(options.device);
  try {
    return std::unique_ptr<Backend>(library.make(&options));
  } catch (const FatalError& error) {
    throw FatalError(error.code(), "device \"" + options.device + "\" was asked for, but " +
                                       error.what() + " (" + library.file + ")");
  }
}

}  // namespace

std::unique_ptr<Backend> make_backend(const BackendOptions& options) {
  if (options.device == "cpu") return cpu::make_backend(options);
  if (is_cuda(options.device)) return make_cuda_backend(options);
  throw FatalError(ErrorCode::kConfig,
                   "unknown device \"" + options.device + "\"; known are cpu, cuda and cuda:N");
}

std::string device_identity(const std::string& device) {
  std::string identity;
  if (is_cuda(device)) cuda_library(device).identity(&device, &identity);
  return identity;
}

}  // namespace foretoken
