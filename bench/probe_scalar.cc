#include "bench/probe.h"

#include "kernels/cpu/isa.h"
#include "kernels/include/numerics.h"

namespace foretoken::bench {
namespace {

using namespace cpu;
constexpr int kProbeChains = 2;
constexpr int kProbeColumns = 1;

void plain_noise_words(std::uint32_t, const NoiseKey&, std::uint32_t*) {}

// The order matters.
// clang-format off
#include "kernels/cpu/simd_scalar.h"
#include "kernels/cpu/inner_matmul.h"
#include "bench/probe_inner.h"
// clang-format on

}  // namespace

Probe probe_scalar() { return {"scalar", read_all, peak_f32, peak_bf16, peak_i8}; }

}  // namespace foretoken::bench
