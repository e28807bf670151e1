#include "kernels/ref/ref.h"

namespace foretoken::ref {

std::vector<Real> lm_head(const LmHeadArgs& args, const Matrix& head, InputRounding rounding) {
  std::vector<Real> logits;
  for (std::int32_t r = 0; r < args.n_rows; ++r) {
    const std::vector<Real> hidden = widen(args.hidden + args.rows[r] * head.n_in, head.n_in);
    const std::vector<Real> y =
        multiply(rms_norm(hidden, args.norm, args.norm_eps), head, rounding);
    logits.insert(logits.end(), y.begin(), y.end());
  }
  return logits;
}

}  // namespace foretoken::ref
