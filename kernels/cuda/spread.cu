// Rows of a head for some ids as rows over all ids. One block a row: all of it is filled, then the
// ids that the head has are written.
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.cuh"

namespace foretoken::cuda {
namespace {

constexpr int kThreads = 512;

__global__ void __launch_bounds__(kThreads) spread_kernel(SpreadArgs p) {
  wait_for_earlier_kernels();
  let_next_kernel_start();
  const auto row = static_cast<std::int64_t>(blockIdx.x);
  const auto first = static_cast<std::int32_t>(threadIdx.x);
  const float* logits = p.logits + row * p.n_columns;
  float* out = p.out + row * p.vocab;
  for (std::int32_t id = first; id < p.vocab; id += kThreads) out[id] = -__builtin_inff();
  sync_block();
  for (std::int32_t column = first; column < p.n_columns; column += kThreads)
    out[p.ids[column]] = logits[column];
}

}  // namespace

void spread(const Launch& launch_in, const SpreadArgs& args) {
  Launch l = launch_in;
  l.x = static_cast<unsigned>(args.n_rows);
  l.n_threads = kThreads;
  launch(l, "spread", spread_kernel, args);
}

}  // namespace foretoken::cuda
