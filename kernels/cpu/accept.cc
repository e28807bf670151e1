#include "kernels/cpu/backend.h"
#include "kernels/shared/contract.h"

namespace foretoken::cpu {

// A few comparisons: not worth waking the team.
void CpuBackend::accept_now(const AcceptArgs& args) {
  contract::check_contents(args);
  for (std::int32_t s = 0; s < args.n_sequences; ++s) {
    const std::int32_t n = args.row_begin[s + 1] - args.row_begin[s];
    const Choice* choices = args.choices + args.row_begin[s];
    const std::int32_t* tokens = args.tokens + args.row_begin[s];
    std::int32_t n_accepted = 0;
    while (n_accepted + 1 < n && choices[n_accepted].token >= 0 &&
           choices[n_accepted].token == tokens[n_accepted + 1])
      ++n_accepted;
    args.verdicts[s] = {n_accepted, choices[n_accepted].token};
  }
}

}  // namespace foretoken::cpu
