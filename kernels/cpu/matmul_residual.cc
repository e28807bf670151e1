#include "kernels/cpu/backend.h"

namespace foretoken::cpu {
namespace {

// Of a row that is written soon: its panels lie apart, so that no processor foresees them.
void prefetch(const float* p, std::int64_t n) {
  constexpr std::int64_t kLineFloats = 16;
  for (std::int64_t i = 0; i < n; i += kLineFloats) __builtin_prefetch(p + i, 1, 2);
}

}  // namespace

void CpuBackend::matmul_residual_now(const MatmulResidualArgs& args) {
  const PackedView view(*args.weight, isa_);
  const PreparedRows rows = matmul_space_.prepare(view, args.n_rows);
  matmul_space_.reserve_members(team_.size(), member_floats(args.n_rows, 1));
  const std::int64_t n_out = args.weight->n_out, next_tile = view.product->tile_rows;
  float* to = args.partial != nullptr ? args.partial : args.residual;
  team_.run([&](int member) {
    const Share mine = share_of(args.n_rows, member, team_.size());
    for (std::int64_t r = mine.begin; r < mine.end; ++r)
      prepare_row(isa_, view, args.x + r * view.n_in, static_cast<std::int32_t>(r), rows);
    team_.barrier();
    multiply<1>(view, rows, args.n_rows, member, team_.size(), matmul_space_.member(member),
                [&](std::int64_t panel, std::int64_t row, const float* c, std::int64_t) {
                  const std::int64_t at = row * n_out + panel * kPanel;
                  const std::int64_t width = std::min<std::int64_t>(kPanel, n_out - panel * kPanel);
                  float* out = to + at;
                  if (row + next_tile < args.n_rows) prefetch(out + next_tile * n_out, width);
                  if (args.partial != nullptr)
                    std::copy(c, c + width, out);
                  else
                    isa_.add(c, width, out);
                });
  });
}

}  // namespace foretoken::cpu
