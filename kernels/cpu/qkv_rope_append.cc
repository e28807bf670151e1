#include "kernels/cpu/backend.h"
#include "kernels/include/layout.h"
#include "kernels/include/numerics.h"
#include "kernels/shared/contract.h"

namespace foretoken::cpu {
namespace {

void store_kv(
    const Isa& isa, const float* x, std::int32_t n, DType dtype, float scale, std::byte* to) {
  if (dtype == DType::kF32) {
    std::copy(x, x + n, reinterpret_cast<float*>(to));
    return;
  }
  if (dtype == DType::kF8E4M3) {
    for (std::int32_t i = 0; i < n; ++i) to[i] = static_cast<std::byte>(f32_to_e4m3(x[i] / scale));
    return;
  }
  std::uint16_t* out = reinterpret_cast<std::uint16_t*>(to);
  if (dtype == DType::kBf16) return isa.to_bf16(x, n, out);
  for (std::int32_t i = 0; i < n; ++i) out[i] = f32_to_f16(x[i]);
}

// What follows the projection, for head `head` of a row: query heads first, then keys, then values.
void finish_head(
    const QkvRopeAppendArgs& args, const Isa& isa, std::int64_t row, std::int32_t head, float* x) {
  const KvGeometry& g = args.kv.geometry;
  const std::int32_t half = g.head_dim / 2;
  const bool is_value = head >= args.n_heads + g.n_kv_heads;
  const bool is_query = head < args.n_heads;
  if (!is_value) {
    const float* norm = is_query ? args.q_norm : args.k_norm;
    if (norm != nullptr) isa.rms_norm(x, norm, args.norm_eps, g.head_dim, x);
    const std::int64_t at = std::int64_t{args.positions[row]} * half;
    isa.rotate(args.rope_cos + at, args.rope_sin + at, half, x);
  }
  if (is_query) {
    std::copy(x, x + g.head_dim, args.q + (row * args.n_heads + head) * g.head_dim);
    return;
  }
  const std::int32_t kv_head = (head - args.n_heads) % g.n_kv_heads;
  const KvHalf half_of_cache = is_value ? KvHalf::kValues : KvHalf::kKeys;
  const float scale = args.kv.scales == nullptr
                          ? 1.0f
                          : args.kv.scales[kv_scale_index(g, args.layer, is_value, kv_head)];
  store_kv(
      isa, x, g.head_dim, g.dtype, scale,
      args.kv.blocks + kv_offset_of_slot(g, args.slots[row], args.layer, half_of_cache, kv_head));
}

}  // namespace

void CpuBackend::qkv_rope_append_now(const QkvRopeAppendArgs& args) {
  contract::check_contents(args);
  const PackedView view(*args.qkv, isa_);
  const PreparedRows rows = matmul_space_.prepare(view, args.n_rows);
  matmul_space_.reserve_members(team_.size(), std::max(member_floats(args.n_rows, 1), view.n_in));
  const std::int64_t n_out = args.qkv->n_out;
  const std::int32_t n_heads = args.n_heads + 2 * args.kv.geometry.n_kv_heads;
  float* qkv = op_scratch_.at_least<float>(static_cast<std::size_t>(args.n_rows * n_out));
  team_.run([&](int member) {
    float* own = matmul_space_.member(member);
    norm_and_prepare(
        isa_, view, share_of(args.n_rows, member, team_.size()),
        [&](std::int64_t r) { return args.hidden + r * view.n_in; }, args.norm, args.norm_eps, own,
        rows);
    team_.barrier();
    multiply<1>(view, rows, args.n_rows, member, team_.size(), own,
                [&](std::int64_t panel, std::int64_t row, const float* c, std::int64_t) {
                  const std::int64_t column = panel * kPanel;
                  const std::int64_t width = std::min<std::int64_t>(kPanel, n_out - column);
                  std::copy(c, c + width, qkv + row * n_out + column);
                });
    team_.barrier();
    const Share heads = share_of(std::int64_t{args.n_rows} * n_heads, member, team_.size());
    for (std::int64_t i = heads.begin; i < heads.end; ++i) {
      const std::int64_t row = i / n_heads;
      const auto head = static_cast<std::int32_t>(i % n_heads);
      finish_head(args, isa_, row, head,
                  qkv + row * n_out + std::int64_t{head} * args.kv.geometry.head_dim);
    }
  });
}

}  // namespace foretoken::cpu
