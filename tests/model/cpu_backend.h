// CPU backends pinned to an instruction set, as far as this machine has it.
#pragma once

#include <memory>

#include "common/base/result.h"
#include "kernels/include/backend.h"

namespace foretoken::test {

inline constexpr CpuIsa kVectorPaths[] = {CpuIsa::kScalar, CpuIsa::kAvx2, CpuIsa::kAvx512,
                                          CpuIsa::kAvx512Bf16};

// Null where this machine lacks the instructions.
inline std::unique_ptr<Backend> backend_for(CpuIsa isa, int n_threads = 1) {
  try {
    return make_backend({.n_threads = n_threads, .isa = isa});
  } catch (const FatalError&) {
    return nullptr;
  }
}

}  // namespace foretoken::test
