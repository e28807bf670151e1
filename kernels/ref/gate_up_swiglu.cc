#include "kernels/ref/ref.h"

namespace foretoken::ref {

std::vector<Real> gate_up_swiglu(const GateUpSwigluArgs& args,
                                 const Matrix& gate_up,
                                 InputRounding rounding) {
  const auto n_ffn = static_cast<std::size_t>(gate_up.n_out / 2);
  std::vector<Real> out;
  for (std::int32_t r = 0; r < args.n_rows; ++r) {
    const std::vector<Real> hidden = widen(args.hidden + r * gate_up.n_in, gate_up.n_in);
    const std::vector<Real> y =
        multiply(rms_norm(hidden, args.norm, args.norm_eps), gate_up, rounding);
    for (std::size_t i = 0; i < n_ffn; ++i) {
      const Real gate = y[i], up = y[n_ffn + i];
      const Real silu = gate / (exactly(1) + exponential({-gate.value, gate.slack}));
      out.push_back(silu * up);
    }
  }
  return out;
}

}  // namespace foretoken::ref
