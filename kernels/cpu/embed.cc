#include "kernels/cpu/backend.h"
#include "kernels/include/numerics.h"
#include "kernels/shared/contract.h"

namespace foretoken::cpu {
namespace {

// One column of a panel, widened and scaled.
void gather_row(const PackedView& view, DType dtype, std::int64_t id, float scale, float* out) {
  const std::byte* panel = view.weights + id / kPanel * view.n_steps * kStepBytes;
  const std::int64_t column = id % kPanel;
  const float weight_scale = view.scales != nullptr ? view.scales[id] : 1.0f;
  for (std::int64_t k = 0; k < view.n_in; ++k) {
    float value = 0;
    if (dtype == DType::kF32) {
      value = reinterpret_cast<const float*>(panel + k * kStepBytes)[column];
    } else if (dtype == DType::kBf16) {
      value = bf16_to_f32(
          reinterpret_cast<const std::uint16_t*>(panel + k / 2 * kStepBytes)[2 * column + k % 2]);
    } else if (dtype == DType::kF16) {
      const std::byte* sixteen = panel + k / 2 * kStepBytes + column / 16 * 64 + k % 2 * 32;
      value = f16_to_f32(reinterpret_cast<const std::uint16_t*>(sixteen)[column % 16]);
    } else {
      const auto biased = static_cast<int>(panel[k / 4 * kStepBytes + column * 4 + k % 4]);
      value = static_cast<float>(biased - 128) * weight_scale;
    }
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
