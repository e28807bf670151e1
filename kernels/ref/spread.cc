// Rows of a head for some ids as rows over all ids.
#include <algorithm>
#include <limits>

#include "kernels/ref/ref.h"

namespace foretoken::ref {

void spread(const SpreadArgs& args) {
  for (std::int32_t r = 0; r < args.n_rows; ++r) {
    float* out = args.out + std::int64_t{r} * args.vocab;
    std::fill_n(out, args.vocab, -std::numeric_limits<float>::infinity());
    for (std::int32_t column = 0; column < args.n_columns; ++column)
      out[args.ids[column]] = args.logits[std::int64_t{r} * args.n_columns + column];
  }
}

}  // namespace foretoken::ref
