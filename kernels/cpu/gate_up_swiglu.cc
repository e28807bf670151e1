#include "kernels/cpu/backend.h"

namespace foretoken::cpu {

void CpuBackend::gate_up_swiglu_now(const GateUpSwigluArgs& args) {
  const PackedView view(*args.gate_up, isa_);
  const PreparedRows rows = matmul_space_.prepare(view, args.n_rows);
  matmul_space_.reserve_members(team_.size(), std::max(member_floats(args.n_rows, 2), view.n_in));
  const std::int64_t n_ffn = args.gate_up->n_out / 2;
  team_.run([&](int member) {
    float* own = matmul_space_.member(member);
    norm_and_prepare(
        isa_, view, share_of(args.n_rows, member, team_.size()),
        [&](std::int64_t r) { return args.hidden + r * view.n_in; }, args.norm, args.norm_eps, own,
        rows);
    team_.barrier();
    multiply<2>(view, rows, args.n_rows, member, team_.size(), own,
                [&](std::int64_t pair, std::int64_t row, const float* gate, std::int64_t apart) {
                  const std::int64_t column = pair * kPanel;
                  const std::int64_t width = std::min<std::int64_t>(kPanel, n_ffn - column);
                  isa_.swiglu(gate, gate + apart, width, args.out + row * n_ffn + column);
                });
  });
}

}  // namespace foretoken::cpu
