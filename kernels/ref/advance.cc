// A sequence's choice as its next row: one position further, in the slot its block table names.
#include <algorithm>

#include "kernels/ref/ref.h"

namespace foretoken::ref {

void advance(const AdvanceArgs& args) {
  for (std::int32_t s = 0; s < args.n_sequences; ++s) {
    const std::int32_t token = args.choices[s].token;
    const std::int32_t* ends = args.end_tokens;
    const bool has_ended = std::find(ends + args.end_begin[s], ends + args.end_begin[s + 1],
                                     token) != ends + args.end_begin[s + 1];
    const std::int32_t position = args.positions[s] + 1;
    const std::int32_t block = position / args.block_tokens;
    if (args.n_left[s] == 0 || token < 0 || has_ended || block >= args.max_blocks) {
      args.n_left[s] = 0;
      continue;
    }
    args.n_left[s] -= 1;
    args.tokens[s] = token;
    args.positions[s] = position;
    args.slots[s] =
        args.block_tables[std::int64_t{s} * args.max_blocks + block] * args.block_tokens +
        position % args.block_tokens;
  }
}

}  // namespace foretoken::ref
