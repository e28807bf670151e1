#include <algorithm>

#include "kernels/cpu/backend.h"
#include "kernels/shared/contract.h"

namespace foretoken::cpu {

void CpuBackend::spread_now(const SpreadArgs& args) {
  contract::check_contents(args);
  team_.run([&](int member) {
    const Share share = share_of(args.n_rows, member, team_.size());
    for (std::int64_t row = share.begin; row < share.end; ++row) {
      const float* logits = args.logits + row * args.n_columns;
      float* out = args.out + row * args.vocab;
      std::fill_n(out, args.vocab, kLeast);
      for (std::int32_t column = 0; column < args.n_columns; ++column)
        out[args.ids[column]] = logits[column];
    }
  });
}

}  // namespace foretoken::cpu
