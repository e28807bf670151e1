// A row laid out for any verdict becomes the one that the verdict names, if it is one.
#include "kernels/ref/ref.h"

namespace foretoken::ref {
namespace {

bool is_believed(const TakeVerdictsArgs& args, std::int32_t s, const BoardEntry& entry) {
  return entry.tag != 0 && entry.tag == args.tags[s] && entry.n_accepted >= 0 &&
         entry.n_accepted <= args.n_drafted[s] && entry.next_token >= 0 &&
         entry.next_token < args.n_ids;
}

}  // namespace

void take_verdicts(const TakeVerdictsArgs& args) {
  for (std::int32_t s = 0; s < args.n_sequences; ++s) {
    const BoardEntry entry = args.board[args.entries[s]];
    if (!is_believed(args, s, entry)) {
      args.taken[s] = {.n_accepted = -1, .next_token = -1};
      if (args.n_ahead > 0) args.n_left[s] = 0;
      continue;
    }
    const auto n = static_cast<std::uint32_t>(entry.n_accepted);
    const std::int32_t last = args.row_begin[s + 1] - 1;
    const std::int32_t row = last - args.n_drafted[s] + entry.n_accepted;
    args.taken[s] = {.n_accepted = entry.n_accepted, .next_token = entry.next_token};
    args.tokens[row] = entry.next_token;
    args.logit_rows[s] = row;
    args.rules[s].position += n;
    if (args.n_ahead == 0) continue;
    for (std::int32_t k = 0; k < args.n_ahead; ++k)
      args.rules_ahead[std::int64_t{k} * args.n_sequences + s].position += n;
    args.next_tokens[s] = entry.next_token;
    args.next_positions[s] = args.positions[row];
    args.next_slots[s] = args.slots[row];
  }
}

}  // namespace foretoken::ref
