#include "bench/probe.h"

#include <immintrin.h>

#include "kernels/cpu/isa.h"
#include "kernels/include/numerics.h"

namespace foretoken::bench {
namespace {

using namespace cpu;
constexpr int kProbeChains = 5;  // of two registers each; sixteen hold them and their operands
constexpr int kProbeColumns = 1;

// The order matters.
// clang-format off
#include "kernels/cpu/simd_avx2.h"
#include "kernels/cpu/inner_matmul.h"
#include "bench/probe_inner.h"
// clang-format on

}  // namespace

Probe probe_avx2() { return {"avx2", read_all, peak_f32, peak_bf16, peak_i8}; }

}  // namespace foretoken::bench
