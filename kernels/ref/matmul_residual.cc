#include "kernels/ref/ref.h"

namespace foretoken::ref {

std::vector<Real> matmul_residual(const MatmulResidualArgs& args,
                                  const Matrix& weight,
                                  const float* before,
                                  InputRounding rounding) {
  std::vector<Real> out;
  for (std::int32_t r = 0; r < args.n_rows; ++r) {
    const std::vector<Real> y =
        multiply(widen(args.x + r * weight.n_in, weight.n_in), weight, rounding);
    for (std::size_t i = 0; i < y.size(); ++i) {
      const auto at = static_cast<std::size_t>(r) * y.size() + i;
      out.push_back(args.partial != nullptr ? y[i]
                                            : exactly(static_cast<double>(before[at])) + y[i]);
    }
  }
  return out;
}

}  // namespace foretoken::ref
