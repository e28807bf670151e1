// What follows the projection: per-head norms, rotation, K and V into their slots. One block for
// each head of a row; query heads first, then keys, then values.
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/include/layout.h"

namespace foretoken::cuda {
namespace {

constexpr int kThreads = 64;

struct RopeArgs {
  const float* qkv;
  const float* q_norm;
  const float* k_norm;
  const float* cos;
  const float* sin;
  const std::int32_t* positions;
  const std::int32_t* slots;
  KvGeometry geometry;
  std::byte* blocks;
  float* q;
  float norm_eps;
  std::int32_t n_heads;
  std::int32_t layer;
};

__device__ __forceinline__ void store_kv(std::byte* to, int i, DType dtype, float x) {
  if (dtype == DType::kF32)
    reinterpret_cast<float*>(to)[i] = x;
  else
    reinterpret_cast<std::uint16_t*>(to)[i] =
        dtype == DType::kBf16 ? f32_to_bf16(x) : f32_to_f16(x);
}

__global__ void __launch_bounds__(kThreads) rope_append_kernel(RopeArgs p) {
  wait_for_earlier_kernels();
  let_next_kernel_start();
  __shared__ float room[kThreads / 32];
  const KvGeometry& g = p.geometry;
  const int t = static_cast<int>(threadIdx.x), head = static_cast<int>(blockIdx.x);
  const auto row = static_cast<std::int64_t>(blockIdx.y);
  const int n_all = p.n_heads + 2 * g.n_kv_heads, half = g.head_dim / 2;
  const bool is_query = head < p.n_heads, is_value = head >= p.n_heads + g.n_kv_heads;
  const float* x = p.qkv + (row * n_all + head) * g.head_dim;
  const float* norm = is_value ? nullptr : is_query ? p.q_norm : p.k_norm;
  float scale = 1.0f;
  if (norm != nullptr) {
    float squares = 0;
    for (int i = t; i < g.head_dim; i += kThreads) squares = fma32(x[i], x[i], squares);
    const float mean = block_sum(squares, room, kThreads / 32) / static_cast<float>(g.head_dim);
    scale = 1.0f / sqrtf(mean + p.norm_eps);
  }
  const auto value = [&](int i) { return norm != nullptr ? x[i] * scale * norm[i] : x[i]; };
  float* q = p.q + (row * p.n_heads + head) * g.head_dim;
  std::byte* kv = nullptr;
  if (!is_query)
    kv = p.blocks + kv_offset_of_slot(g, p.slots[row], p.layer,
                                      is_value ? KvHalf::kValues : KvHalf::kKeys,
                                      (head - p.n_heads) % g.n_kv_heads);
  const auto put = [&](int i, float y) {
    if (is_query)
      q[i] = y;
    else
      store_kv(kv, i, g.dtype, y);
  };
  const std::int64_t angle = is_value ? 0 : std::int64_t{p.positions[row]} * half;
  for (int i = t; i < half; i += kThreads) {
    const float a = value(i), b = value(i + half);
    const float cos = is_value ? 1.0f : p.cos[angle + i], sin = is_value ? 0.0f : p.sin[angle + i];
    put(i, is_value ? a : a * cos - b * sin);
    put(i + half, is_value ? b : b * cos + a * sin);
  }
}

}  // namespace

void rope_append(const Launch& launch_in, const QkvRopeAppendArgs& args, const float* qkv) {
  Launch l = launch_in;
  l.x = static_cast<unsigned>(args.n_heads + 2 * args.kv.geometry.n_kv_heads);
  l.y = static_cast<unsigned>(args.n_rows);
  l.n_threads = kThreads;
  launch(l, "rope_append", rope_append_kernel,
         RopeArgs{qkv, args.q_norm, args.k_norm, args.rope_cos, args.rope_sin, args.positions,
                  args.slots, args.kv.geometry, args.kv.blocks, args.q, args.norm_eps, args.n_heads,
                  args.layer});
}

}  // namespace foretoken::cuda
