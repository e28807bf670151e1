// Sums over ranks: the one-shot push and the sum of what was gathered.
#include "kernels/cuda/sum_ranks.h"

#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/sum_ranks.cuh"

namespace foretoken::cuda {
namespace {

// Blocks of two ranks must be able to run side by side where they share a device.
constexpr std::int64_t kMostBlocks = 64;

__global__ void __launch_bounds__(kSumThreads) sum_ranks_kernel(SumRanksArgs p) {
  wait_for_earlier_kernels();
  let_next_kernel_start();
  sum_ranks_block(p, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x));
}

__global__ void __launch_bounds__(kSumThreads) sum_gathered_kernel(SumGatheredArgs p) {
  wait_for_earlier_kernels();
  let_next_kernel_start();
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kSumThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kSumThreads + threadIdx.x; i < p.n;
       i += step) {
    float sum = p.parts[i];
    for (int r = 1; r < p.n_ranks; ++r) sum += p.parts[r * p.n + i];
    p.residual[i] += sum;
  }
}

}  // namespace

void sum_ranks(const Launch& launch_in, const SumRanksArgs& args) {
  Launch l = launch_in;
  const std::int64_t n_packets = (args.n + 2) / 3;
  l.x = static_cast<unsigned>(std::min((n_packets + kSumThreads - 1) / kSumThreads, kMostBlocks));
  l.n_threads = kSumThreads;
  l.overlap = false;  // the turn counts on the sum before having ended
  launch(l, "sum_ranks", sum_ranks_kernel, args);
}

void sum_gathered(const Launch& launch_in, const SumGatheredArgs& args) {
  Launch l = launch_in;
  l.x =
      static_cast<unsigned>(std::min<std::int64_t>((args.n + kSumThreads - 1) / kSumThreads, 1024));
  l.n_threads = kSumThreads;
  launch(l, "sum_gathered", sum_gathered_kernel, args);
}

}  // namespace foretoken::cuda
