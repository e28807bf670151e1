// A Runtime on the CPU: memory is host memory, launches run at once or are kept while capturing.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "kernels/device/runtime.h"

namespace foretoken::emu {

// is_watched: the promises of overlapping launches are checked (kernels/emu/machine.h).
std::unique_ptr<cuda::Runtime> make_runtime(int major, bool is_watched = false);
bool is_watched(const cuda::Runtime& runtime);
void submit(cuda::Runtime& runtime, std::function<void()> call);

}  // namespace foretoken::emu
