#include <atomic>
#include <cstdint>

#include "kernels/contract.h"
#include "kernels/cpu/backend.h"

namespace foretoken::cpu {
namespace {

// Tag 0 if the entry changed while it was read. The memory may be mapped for reading only, which is
// all that these loads do.
BoardEntry read(const BoardEntry& at) {
  auto& entry = const_cast<BoardEntry&>(at);
  const std::atomic_ref tag(entry.tag);
  BoardEntry seen;
  seen.tag = tag.load(std::memory_order_acquire);
  seen.n_accepted = std::atomic_ref(entry.n_accepted).load(std::memory_order_acquire);
  seen.next_token = std::atomic_ref(entry.next_token).load(std::memory_order_acquire);
  if (tag.load(std::memory_order_relaxed) != seen.tag) seen.tag = 0;
  return seen;
}

bool is_believed(const TakeVerdictsArgs& args, std::int32_t s, const BoardEntry& entry) {
  return entry.tag != 0 && entry.tag == args.tags[s] && entry.n_accepted >= 0 &&
         entry.n_accepted <= args.n_drafted[s] && entry.next_token >= 0 &&
         entry.next_token < args.n_ids;
}

}  // namespace

void CpuBackend::take_verdicts_now(const TakeVerdictsArgs& args) {
  contract::check_contents(args);
  for (std::int32_t s = 0; s < args.n_sequences; ++s) {
    const BoardEntry entry = read(args.board[args.entries[s]]);
    if (!is_believed(args, s, entry)) {
      args.taken[s] = {.n_accepted = -1, .next_token = -1};
      if (args.n_ahead > 0) args.n_left[s] = 0;
      continue;
    }
    const auto n = static_cast<std::uint32_t>(entry.n_accepted);
    const std::int32_t row = args.row_begin[s + 1] - 1 - args.n_drafted[s] + entry.n_accepted;
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

}  // namespace foretoken::cpu
