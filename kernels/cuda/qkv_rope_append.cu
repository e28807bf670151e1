// What follows the projection where the product does not do it itself. A warp for each head of a
// row; query heads first, then keys, then values.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/rope.cuh"

namespace foretoken::cuda {
namespace {

constexpr int kWarps = 2;
constexpr int kThreads = 32 * kWarps;

// Waits before its first read: the projection in front of it wrote what it works on.
__global__ void __launch_bounds__(kThreads) rope_append_kernel(RopeArgs p, const float* qkv) {
  wait_for_earlier_kernels();
  let_next_kernel_start();
  const KvGeometry& g = p.geometry;
  const int n_all = p.n_heads + 2 * g.n_kv_heads;
  const int head = static_cast<int>(blockIdx.x) * kWarps + warp_id();
  const auto row = static_cast<std::int64_t>(blockIdx.y);
  if (head < n_all) finish_head(p, qkv + (row * n_all + head) * g.head_dim, head, row);
}

}  // namespace

void rope_append(const Launch& launch_in,
                 const RopeArgs& args,
                 const float* qkv,
                 std::int32_t n_rows) {
  Launch l = launch_in;
  l.x = static_cast<unsigned>((args.n_heads + 2 * args.geometry.n_kv_heads + kWarps - 1) / kWarps);
  l.y = static_cast<unsigned>(n_rows);
  l.n_threads = kThreads;
  launch(l, "rope_append", rope_append_kernel, args, qkv);
}

}  // namespace foretoken::cuda
