// The lines for 100 %: how fast one core can read memory, and how many multiply-adds it can do from
// registers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/include/backend.h"

namespace foretoken::bench {

struct Probe {
  const char* name = "";
  // Reads everything once; the return value only keeps the compiler honest.
  float (*read)(const std::byte* p, std::size_t bytes) = nullptr;
  // Runs `n` rounds of independent multiply-adds in registers; returns operations done (a
  // multiply-add is two).
  double (*peak_f32)(std::int64_t n) = nullptr;
  double (*peak_bf16)(std::int64_t n) = nullptr;
  double (*peak_i8)(std::int64_t n) = nullptr;
};

Probe probe_scalar();
Probe probe_avx2();
Probe probe_avx512();
Probe probe_avx512_bf16();
Probe probe_amx();

// The widest this machine can run, but not wider than `isa`.
Probe probe_for(CpuIsa isa);

}  // namespace foretoken::bench
