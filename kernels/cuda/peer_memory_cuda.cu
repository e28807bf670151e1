// Device memory between processes, by CUDA IPC.
#include <cstring>

#include "kernels/cuda/cuda_check.h"
#include "kernels/device/peer_memory.h"

namespace foretoken::cuda {

static_assert(sizeof(MemoryHandle) == sizeof(cudaIpcMemHandle_t));

MemoryHandle handle_of(Runtime& runtime, void* address) {
  runtime.bind();
  MemoryHandle handle{};
  cudaIpcMemHandle_t native;
  if (cudaIpcGetMemHandle(&native, address) == cudaSuccess)
    std::memcpy(handle.data(), &native, sizeof native);
  else
    cudaGetLastError();  // it is not an error of later calls
  return handle;
}

void* open_peer(Runtime& runtime, const MemoryHandle& handle, std::string& why) {
  runtime.bind();
  cudaIpcMemHandle_t native;
  std::memcpy(&native, handle.data(), sizeof native);
  void* address = nullptr;
  const cudaError_t status = cudaIpcOpenMemHandle(&address, native, cudaIpcMemLazyEnablePeerAccess);
  if (status == cudaSuccess) return address;
  cudaGetLastError();
  why = cudaGetErrorString(status);
  return nullptr;
}

void close_peer(Runtime& runtime, void* address) noexcept {
  try {
    runtime.bind();
  } catch (...) {
    return;
  }
  cudaIpcCloseMemHandle(address);
}

}  // namespace foretoken::cuda
