// The table for AVX-512 with BF16 and VNNI. Nothing but inner_*.h may be instantiated here: this
// file has its own compiler flags.
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
#include "kernels/cpu/inner_attention_bf16.h"
#include "kernels/cpu/inner_table.h"
// clang-format on

}  // namespace

const Isa* isa_avx512_bf16() {
  static const Isa table = [] {
    Isa made = make_table(CpuIsa::kAvx512Bf16, "avx512_bf16", "bf16");
    made.attention[static_cast<int>(DType::kBf16)] = attention_by_pairs;
    return made;
  }();
  return &table;
}

}  // namespace foretoken::cpu
