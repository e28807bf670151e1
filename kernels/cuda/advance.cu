// Each sequence's choice as its next row. A thread a sequence: a handful of integers each.
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.cuh"

namespace foretoken::cuda {
namespace {

constexpr int kThreads = 128;

__global__ void __launch_bounds__(kThreads) advance_kernel(AdvanceArgs p) {
  wait_for_earlier_kernels();
  let_next_kernel_start();
  const std::int32_t s =
      static_cast<std::int32_t>(blockIdx.x) * kThreads + static_cast<std::int32_t>(threadIdx.x);
  if (s >= p.n_sequences || p.n_left[s] == 0) return;
  const std::int32_t token = p.choices[s].token, position = p.positions[s] + 1;
  const std::int32_t block = position / p.block_tokens;
  bool goes_on = token >= 0 && block < p.max_blocks;
  for (std::int32_t i = p.end_begin[s]; i < p.end_begin[s + 1]; ++i)
    goes_on = goes_on && p.end_tokens[i] != token;
  if (!goes_on) {
    p.n_left[s] = 0;
    return;
  }
  p.n_left[s] -= 1;
  p.tokens[s] = token;
  p.positions[s] = position;
  p.slots[s] = p.block_tables[std::int64_t{s} * p.max_blocks + block] * p.block_tokens +
               position % p.block_tokens;
}

}  // namespace

void advance(const Launch& launch_in, const AdvanceArgs& args) {
  Launch l = launch_in;
  l.x = static_cast<unsigned>((args.n_sequences + kThreads - 1) / kThreads);
  l.n_threads = kThreads;
  launch(l, "advance", advance_kernel, args);
}

}  // namespace foretoken::cuda
