// The table for AVX-512 F, BW, DQ and VL. Nothing but inner_*.h may be instantiated here: this file
// has its own compiler flags.
#include "kernels/cpu/isa.h"

#include <immintrin.h>

#include "kernels/include/numerics.h"

namespace foretoken::cpu {
namespace {

// The order matters.
// clang-format off
#include "kernels/cpu/simd_avx512.h"
#include "kernels/cpu/inner_matmul.h"
#include "kernels/cpu/inner_int4.h"
#include "kernels/cpu/inner_rows.h"
#include "kernels/cpu/inner_attention.h"
#include "kernels/cpu/inner_table.h"
// clang-format on

}  // namespace

const Isa* isa_avx512() {
  static const Isa table = make_table(CpuIsa::kAvx512, "avx512", "fma");
  return &table;
}

}  // namespace foretoken::cpu
