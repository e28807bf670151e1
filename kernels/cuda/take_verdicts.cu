// Rows that were laid out before a verdict was known become what it says. A thread a sequence: a
// handful of integers, and a rule's position for each step of its chain.
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/whole.cuh"

namespace foretoken::cuda {
namespace {

constexpr int kThreads = 128;

__global__ void __launch_bounds__(kThreads) take_verdicts_kernel(TakeVerdictsArgs p) {
  wait_for_earlier_kernels();
  let_next_kernel_start();
  const std::int32_t s =
      static_cast<std::int32_t>(blockIdx.x) * kThreads + static_cast<std::int32_t>(threadIdx.x);
  if (s >= p.n_sequences) return;
  const BoardEntry entry = load_whole(p.board + p.entries[s]);
  const std::int32_t n = entry.n_accepted, token = entry.next_token, n_drafted = p.n_drafted[s];
  if (entry.tag == 0 || entry.tag != p.tags[s] || n < 0 || n > n_drafted || token < 0 ||
      token >= p.n_ids) {
    p.taken[s] = {-1, -1};
    if (p.n_ahead > 0) p.n_left[s] = 0;
    return;
  }
  const std::int32_t row = p.row_begin[s + 1] - 1 - n_drafted + n;
  p.taken[s] = {n, token};
  p.tokens[row] = token;
  p.logit_rows[s] = row;
  p.rules[s].position += static_cast<std::uint32_t>(n);
  if (p.n_ahead == 0) return;
  for (std::int32_t k = 0; k < p.n_ahead; ++k)
    p.rules_ahead[std::int64_t{k} * p.n_sequences + s].position += static_cast<std::uint32_t>(n);
  p.next_tokens[s] = token;
  p.next_positions[s] = p.positions[row];
  p.next_slots[s] = p.slots[row];
}

}  // namespace

void take_verdicts(const Launch& launch_in, const TakeVerdictsArgs& args) {
  Launch l = launch_in;
  l.x = static_cast<unsigned>((args.n_sequences + kThreads - 1) / kThreads);
  l.n_threads = kThreads;
  launch(l, "take_verdicts", take_verdicts_kernel, args);
}

}  // namespace foretoken::cuda
