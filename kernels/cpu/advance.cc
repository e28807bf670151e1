#include <cstdint>

#include "kernels/cpu/backend.h"
#include "kernels/shared/contract.h"

namespace foretoken::cpu {
namespace {

bool is_end(const AdvanceArgs& args, std::int32_t s, std::int32_t token) {
  for (std::int32_t i = args.end_begin[s]; i < args.end_begin[s + 1]; ++i)
    if (args.end_tokens[i] == token) return true;
  return false;
}

}  // namespace

// A few integers a sequence: not worth waking the team.
void CpuBackend::advance_now(const AdvanceArgs& args) {
  contract::check_contents(args);
  for (std::int32_t s = 0; s < args.n_sequences; ++s) {
    if (args.n_left[s] == 0) continue;
    const std::int32_t token = args.choices[s].token, position = args.positions[s] + 1;
    const std::int32_t block = position / args.block_tokens;
    if (token < 0 || block >= args.max_blocks || is_end(args, s, token)) {
      args.n_left[s] = 0;
      continue;
    }
    --args.n_left[s];
    args.tokens[s] = token;
    args.positions[s] = position;
    args.slots[s] =
        args.block_tables[std::int64_t{s} * args.max_blocks + block] * args.block_tokens +
        position % args.block_tokens;
  }
}

}  // namespace foretoken::cpu
