// A Runtime on the CPU: memory is host memory, launches run at once or are kept while capturing.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "kernels/cuda/runtime.h"
#include "kernels/include/backend.h"

namespace foretoken::emu {

// is_watched: the promises of overlapping launches are checked (kernels/emu/machine.h).
std::unique_ptr<cuda::Runtime> make_runtime(int major, bool is_watched = false);
bool is_watched(const cuda::Runtime& runtime);
void submit(cuda::Runtime& runtime, std::function<void()> call);

// The CUDA backend on an emulated device of compute capability major.0; watched where launches
// overlap.
std::unique_ptr<Backend> make_backend(int major, CudaPath path, Record record = Record::kAuto);

}  // namespace foretoken::emu
