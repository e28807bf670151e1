#include <cstring>

#include "kernels/cpu/backend.h"
#include "kernels/include/numerics.h"
#include "kernels/shared/contract.h"

namespace foretoken::cpu {
namespace {

// Where value k of a panel's column is stored, in bytes.
std::int64_t offset_of(const Product& product, std::int64_t column, std::int64_t k) {
  const std::int64_t step = k / product.k_per_step * kStepBytes;
  const std::int64_t in_step = k % product.k_per_step * (kStepBytes / kPanel / product.k_per_step);
  const std::int64_t n = product.halves_of;
  if (n == 0) return step + column * (kStepBytes / kPanel) + in_step;
  return step + column / n * 4 * n + in_step / 2 * 2 * n + column % n * 2 + in_step % 2;
}

float stored(DType dtype, const std::byte* at) {
  std::uint16_t half = 0;
  float full = 0;
  if (dtype == DType::kI8) return static_cast<float>(static_cast<int>(*at) - 128);
  if (dtype == DType::kF32) {
    std::memcpy(&full, at, sizeof full);
    return full;
  }
  std::memcpy(&half, at, sizeof half);
  return dtype == DType::kBf16 ? bf16_to_f32(half) : f16_to_f32(half);
}

// One column of a panel, widened and scaled.
void gather_row(const PackedView& view, DType dtype, std::int64_t id, float scale, float* out) {
  const std::byte* panel = view.weights + id / kPanel * view.n_steps * kStepBytes;
  for (std::int64_t k = 0; k < view.n_in; ++k) {
    float value = stored(dtype, panel + offset_of(*view.product, id % kPanel, k));
    if (view.scales != nullptr) value *= view.scales[id];
    out[k] = value * scale;
  }
}

}  // namespace

void CpuBackend::embed_now(const EmbedArgs& args) {
  contract::check_contents(args);
  const PackedView view(*args.table, isa_);
  team_.run([&](int member) {
    const Share share = share_of(args.n_rows, member, team_.size());
    for (std::int64_t r = share.begin; r < share.end; ++r)
      gather_row(view, args.table->dtype, args.tokens[r], args.scale, args.hidden + r * view.n_in);
  });
}

}  // namespace foretoken::cpu
