// The CUDA backend with its kernels on an emulated device, for tests. In a file of its own, above
// the emulator, which has no backend.
#pragma once

#include <memory>

#include "kernels/include/backend.h"

namespace foretoken::emu {

// A device of compute capability major.0; watched where launches overlap.
std::unique_ptr<Backend> make_backend(int major, CudaPath path, Record record = Record::kAuto);

}  // namespace foretoken::emu
