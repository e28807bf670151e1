// The longest prefix of each sequence's proposals that the target chose by itself. A warp a
// sequence: lanes compare 32 rows at a time, the first that differs ends it.
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.cuh"

namespace foretoken::cuda {
namespace {

constexpr int kThreads = 128;

__global__ void __launch_bounds__(kThreads) accept_kernel(AcceptArgs p) {
  wait_for_earlier_kernels();
  let_next_kernel_start();
  const int lane = lane_id();
  const int s = static_cast<int>(blockIdx.x) * (kThreads / 32) + warp_id();
  if (s >= p.n_sequences) return;
  const std::int32_t begin = p.row_begin[s], n = p.row_begin[s + 1] - begin;
  std::int32_t n_accepted = n - 1;
  for (std::int32_t first = 0; first < n - 1 && n_accepted == n - 1; first += 32) {
    const std::int32_t row = first + lane;
    std::int32_t differs = n - 1;  // the first of this lane's rows that does not stand
    if (row < n - 1) {
      const std::int32_t proposed = p.tokens[begin + row + 1];
      if (proposed < 0 || proposed != p.choices[begin + row].token) differs = row;
    }
    for (int step = 16; step > 0; step /= 2) {
      const std::int32_t other = shuffle_xor(differs, step);
      differs = other < differs ? other : differs;
    }
    n_accepted = differs;
  }
  if (lane == 0) p.verdicts[s] = {n_accepted, p.choices[begin + n_accepted].token};
}

}  // namespace

void accept(const Launch& launch_in, const AcceptArgs& args) {
  Launch l = launch_in;
  l.x = static_cast<unsigned>((args.n_sequences + kThreads / 32 - 1) / (kThreads / 32));
  l.n_threads = kThreads;
  launch(l, "accept", accept_kernel, args);
}

}  // namespace foretoken::cuda
