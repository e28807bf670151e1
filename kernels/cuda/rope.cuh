// What becomes of one head that the projection made: norm, rotation, q to its place, K and V to
// their slots. One arithmetic for the kernel that does it apart and for the product that does it
// itself. A warp does a head.
#pragma once

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/include/layout.h"

namespace foretoken::cuda {

__device__ __forceinline__ void store_kv(std::byte* to, int i, DType dtype, float scale, float x) {
  if (dtype == DType::kF32)
    reinterpret_cast<float*>(to)[i] = x;
  else if (dtype == DType::kF8E4M3)
    to[i] = static_cast<std::byte>(f32_to_e4m3(x / scale));
  else
    reinterpret_cast<std::uint16_t*>(to)[i] =
        dtype == DType::kBf16 ? f32_to_bf16(x) : f32_to_f16(x);
}

// x: [head_dim] of head `head` of row `row`; query heads first, then keys, then values.
__device__ __forceinline__ void finish_head(const RopeArgs& p,
                                            const float* x,
                                            int head,
                                            std::int64_t row) {
  const KvGeometry& g = p.geometry;
  const int lane = lane_id(), half = g.head_dim / 2;
  const bool is_query = head < p.n_heads, is_value = head >= p.n_heads + g.n_kv_heads;
  const float* norm = is_value ? nullptr : is_query ? p.q_norm : p.k_norm;
  float scale = 1.0f;
  if (norm != nullptr) {
    float squares = 0;
    for (int i = lane; i < g.head_dim; i += 32) squares = fma32(x[i], x[i], squares);
    scale = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(g.head_dim) + p.norm_eps);
  }
  const auto value = [&](int i) { return norm != nullptr ? x[i] * scale * norm[i] : x[i]; };
  float* q = p.q + (row * p.n_heads + head) * g.head_dim;
  std::byte* kv = nullptr;
  float kv_scale = 1.0f;
  if (!is_query) {
    const int kv_head = (head - p.n_heads) % g.n_kv_heads;
    kv = p.blocks + kv_offset_of_slot(g, p.slots[row], p.layer,
                                      is_value ? KvHalf::kValues : KvHalf::kKeys, kv_head);
    if (p.scales != nullptr) kv_scale = p.scales[kv_scale_index(g, p.layer, is_value, kv_head)];
  }
  const auto put = [&](int i, float y) {
    if (is_query)
      q[i] = y;
    else
      store_kv(kv, i, g.dtype, kv_scale, y);
  };
  const std::int64_t angle = is_value ? 0 : std::int64_t{p.positions[row]} * half;
  for (int i = lane; i < half; i += 32) {
    const float a = value(i), b = value(i + half);
    const float cos = is_value ? 1.0f : p.cos[angle + i], sin = is_value ? 0.0f : p.sin[angle + i];
    put(i, is_value ? a : a * cos - b * sin);
    put(i + half, is_value ? b : b * cos + a * sin);
  }
}

}  // namespace foretoken::cuda
