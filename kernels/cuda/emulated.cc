#include "kernels/cuda/emulated.h"

#include "kernels/cuda/backend.h"
#include "kernels/emu/runtime_emu.h"

namespace foretoken::emu {

std::unique_ptr<Backend> make_backend(int major, CudaPath path, Record record) {
  return std::make_unique<cuda::CudaBackend>(make_runtime(major, path >= CudaPath::kRingOverlap),
                                             path, record);
}

}  // namespace foretoken::emu
