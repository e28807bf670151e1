// Verdicts where their drafts look for them.
#include "kernels/ref/ref.h"

namespace foretoken::ref {

void post_verdicts(const PostVerdictsArgs& args) {
  for (std::int32_t i = 0; i < args.n; ++i) {
    const Verdict& verdict = args.verdicts[args.which[i]];
    args.board[args.entries[i]] = {
        .tag = args.tags[i], .n_accepted = verdict.n_accepted, .next_token = verdict.next_token};
  }
}

}  // namespace foretoken::ref
