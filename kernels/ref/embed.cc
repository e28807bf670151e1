#include "kernels/ref/ref.h"

namespace foretoken::ref {

std::vector<Real> embed(const EmbedArgs& args, const Matrix& table) {
  std::vector<Real> hidden;
  for (std::int32_t r = 0; r < args.n_rows; ++r)
    for (std::int64_t k = 0; k < table.n_in; ++k) {
      const double w = table.weights[static_cast<std::size_t>(args.tokens[r] * table.n_in + k)];
      hidden.push_back(rounded(exactly(w)) * exactly(static_cast<double>(args.scale)));
    }
  return hidden;
}

}  // namespace foretoken::ref
