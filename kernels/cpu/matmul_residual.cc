#include "kernels/cpu/backend.h"

namespace foretoken::cpu {

void CpuBackend::matmul_residual_now(const MatmulResidualArgs& args) {
  const PackedView view(*args.weight, isa_);
  const PreparedRows rows = matmul_space_.prepare(view, args.n_rows);
  matmul_space_.reserve_members(team_.size(), member_floats(args.n_rows, 1));
  const std::int64_t n_out = args.weight->n_out;
  team_.run([&](int member) {
    const Share mine = share_of(args.n_rows, member, team_.size());
    for (std::int64_t r = mine.begin; r < mine.end; ++r)
      prepare_row(isa_, view, args.x + r * view.n_in, static_cast<std::int32_t>(r), rows);
    team_.barrier();
    multiply<1>(view, rows, args.n_rows, member, team_.size(), matmul_space_.member(member),
                [&](std::int64_t panel, std::int32_t first, std::int32_t n, const float* c) {
                  const std::int64_t column = panel * kPanel;
                  const std::int64_t width = std::min<std::int64_t>(kPanel, n_out - column);
                  float* out = (args.partial != nullptr ? args.partial : args.residual) +
                               first * n_out + column;
                  for (std::int32_t r = 0; r < n; ++r, out += n_out, c += kPanel) {
                    if (args.partial != nullptr)
                      std::copy(c, c + width, out);
                    else
                      for (std::int64_t i = 0; i < width; ++i) out[i] += c[i];
                  }
                });
  });
}

}  // namespace foretoken::cpu
