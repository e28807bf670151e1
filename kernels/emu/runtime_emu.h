// A Runtime on the CPU: memory is host memory, launches run at once or are kept while capturing.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "kernels/cuda/runtime.h"
#include "kernels/include/backend.h"

namespace foretoken::emu {

std::unique_ptr<cuda::Runtime> make_runtime(int major);
void submit(cuda::Runtime& runtime, std::function<void()> call);

// The CUDA backend on an emulated device of compute capability major.0.
std::unique_ptr<Backend> make_backend(int major, CudaPath path, Record record = Record::kAuto);

}  // namespace foretoken::emu
