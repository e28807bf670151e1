// Coupled acceptance: a proposal stands if it is the token the target chose by itself. Nothing of
// how it was proposed takes part, so any proposer is safe and the text is that of plain decoding.
#include "kernels/ref/ref.h"

namespace foretoken::ref {

void accept(const AcceptArgs& args) {
  for (std::int32_t s = 0; s < args.n_sequences; ++s) {
    const std::int32_t begin = args.row_begin[s], end = args.row_begin[s + 1];
    std::int32_t row = begin;
    while (row + 1 < end && args.tokens[row + 1] >= 0 &&
           args.choices[row].token == args.tokens[row + 1])
      ++row;
    args.verdicts[s] = {row - begin, args.choices[row].token};
  }
}

}  // namespace foretoken::ref
