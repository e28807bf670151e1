#include "kernels/cpu/backend.h"

namespace foretoken::cpu {

void CpuBackend::lm_head_now(const LmHeadArgs& args) {
  const PackedView view(*args.head, isa_);
  const PreparedRows rows = matmul_space_.prepare(view, args.n_rows);
  matmul_space_.reserve_members(team_.size(), std::max(member_floats(args.n_rows, 1), view.n_in));
  const std::int64_t vocab = args.head->n_out;
  team_.run([&](int member) {
    float* own = matmul_space_.member(member);
    norm_and_prepare(
        isa_, view, share_of(args.n_rows, member, team_.size()),
        [&](std::int64_t r) { return args.hidden + args.rows[r] * view.n_in; }, args.norm,
        args.norm_eps, own, rows);
    team_.barrier();
    multiply<1>(view, rows, args.n_rows, member, team_.size(), own,
                [&](std::int64_t panel, std::int32_t first, std::int32_t n, const float* c) {
                  const std::int64_t column = panel * kPanel;
                  const std::int64_t width = std::min<std::int64_t>(kPanel, vocab - column);
                  for (std::int32_t r = 0; r < n; ++r, c += kPanel)
                    std::copy(c, c + width, args.logits + (first + r) * vocab + column);
                });
  });
  end_pass();
}

}  // namespace foretoken::cpu
