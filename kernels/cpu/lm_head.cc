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
                [&](std::int64_t panel, std::int64_t row, const float* c, std::int64_t) {
                  const std::int64_t column = panel * kPanel;
                  const std::int64_t width = std::min<std::int64_t>(kPanel, vocab - column);
                  std::copy(c, c + width, args.logits + row * vocab + column);
                });
  });
  end_pass();
}

}  // namespace foretoken::cpu
