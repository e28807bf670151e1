// Verdicts where the devices of drafts look for them. A thread an entry, and an entry one store.
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/whole.cuh"

namespace foretoken::cuda {
namespace {

constexpr int kThreads = 128;

__global__ void __launch_bounds__(kThreads) post_verdicts_kernel(PostVerdictsArgs p) {
  wait_for_earlier_kernels();
  let_next_kernel_start();
  const std::int32_t i =
      static_cast<std::int32_t>(blockIdx.x) * kThreads + static_cast<std::int32_t>(threadIdx.x);
  if (i >= p.n) return;
  const Verdict verdict = p.verdicts[p.which[i]];
  store_whole(p.board + p.entries[i],
              BoardEntry{p.tags[i], verdict.n_accepted, verdict.next_token});
}

}  // namespace

void post_verdicts(const Launch& launch_in, const PostVerdictsArgs& args) {
  Launch l = launch_in;
  l.x = static_cast<unsigned>((args.n + kThreads - 1) / kThreads);
  l.n_threads = kThreads;
  launch(l, "post_verdicts", post_verdicts_kernel, args);
}

}  // namespace foretoken::cuda
