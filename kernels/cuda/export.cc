// The symbols of libforetoken_cuda.so. Called by kernels/make_backend.cc through dlsym.
#include <cstdlib>
#include <memory>
#include <string>

#include "common/base/result.h"
#include "kernels/cuda/backend.h"
#include "kernels/cuda/identity.h"

namespace foretoken {
namespace {

int index_of(const std::string& device) {
  const std::size_t colon = device.find(':');
  return colon == std::string::npos ? 0 : std::atoi(device.c_str() + colon + 1);
}

}  // namespace

// Throws FatalError. The caller and this library are built from the same sources, which
// kernels/make_backend.cc makes sure of before it calls.
extern "C" __attribute__((visibility("default"))) Backend* foretoken_cuda_backend(
    const BackendOptions* options) {
  return std::make_unique<cuda::CudaBackend>(cuda::make_runtime(index_of(options->device)),
                                             options->cuda_path, options->record)
      .release();
}

// Throws FatalError.
extern "C" __attribute__((visibility("default"))) void foretoken_cuda_identity(
    const std::string* device, std::string* identity) {
  *identity = cuda::device_uuid(index_of(*device));
}

extern "C" __attribute__((visibility("default"))) const char* foretoken_cuda_build() {
  return FORETOKEN_BUILD_TAG;
}

}  // namespace foretoken
