// launch(): starts a kernel on a Runtime, on a device or in the emulator. For .cu files only.
#pragma once

#include <utility>

#include "kernels/cuda/device.cuh"
#include "kernels/device/runtime.h"

#if defined(__CUDACC__)
#include "kernels/cuda/cuda_check.h"

namespace foretoken::cuda {

template <class... Parameters, class... Arguments>
void launch(const Launch& l,
            const char* name,
            void (*kernel)(Parameters...),
            Arguments&&... arguments) {
  l.runtime.bind();
  if (l.shared_bytes > 48u << 10)
    cuda_check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                    cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(l.shared_bytes)),
               name, "shared memory of a kernel");
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(l.x, l.y, l.z);
  config.blockDim = dim3(static_cast<unsigned>(l.n_threads));
  config.dynamicSmemBytes = l.shared_bytes;
  config.stream = static_cast<cudaStream_t>(l.runtime.stream());
  cudaLaunchAttribute attributes[2] = {};
  config.attrs = attributes;
  if (l.cluster > 1) {
    cudaLaunchAttribute& a = attributes[config.numAttrs++];
    a.id = cudaLaunchAttributeClusterDimension;
    a.val.clusterDim.x = 1;
    a.val.clusterDim.y = 1;
    a.val.clusterDim.z = static_cast<unsigned>(l.cluster);
  }
  if (l.overlap) {
    cudaLaunchAttribute& a = attributes[config.numAttrs++];
    a.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    a.val.programmaticStreamSerializationAllowed = 1;
  }
  cuda_check(cudaLaunchKernelEx(&config, kernel, Parameters(std::forward<Arguments>(arguments))...),
             name, "launch");
}

}  // namespace foretoken::cuda

#else
#include "kernels/emu/runtime_emu.h"

namespace foretoken::cuda {

template <class... Parameters, class... Arguments>
void launch(const Launch& l,
            const char* name,
            void (*kernel)(Parameters...),
            Arguments&&... arguments) {
  const emu::Grid grid{{l.x, l.y, l.z},
                       l.n_threads,
                       l.shared_bytes,
                       l.cluster,
                       l.overlap,
                       emu::is_watched(l.runtime),
                       name};
  emu::submit(l.runtime, [=] { emu::run(grid, [&] { kernel(arguments...); }); });
}

}  // namespace foretoken::cuda
#endif
