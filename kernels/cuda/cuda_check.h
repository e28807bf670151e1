// The one way a CUDA call is judged: a failure ends the process with the call, the place it was
// made for and the driver's words. Only files of kernels/cuda/ that speak to the runtime include
// this.
#pragma once

#include <cuda_runtime.h>

#include <string>

#include "common/base/result.h"

namespace foretoken::cuda {

inline void cuda_check(cudaError_t status, const char* what, const char* call) {
  if (status == cudaSuccess) return;
  throw FatalError(
      status == cudaErrorMemoryAllocation ? ErrorCode::kOutOfMemory : ErrorCode::kUnavailable,
      std::string("CUDA: ") + call + " of " + what + " failed: " + cudaGetErrorString(status) +
          " (" + cudaGetErrorName(status) + ")");
}

}  // namespace foretoken::cuda
