#include <algorithm>

#include "kernels/ref/ref.h"

namespace foretoken::ref {
namespace {

using Head = std::vector<Real>;

Head rotate(const Head& x, const float* cos, const float* sin) {
  const std::size_t half = x.size() / 2;
  Head y(x.size());
  for (std::size_t i = 0; i < half; ++i) {
    const Real c = exactly(static_cast<double>(cos[i])), s = exactly(static_cast<double>(sin[i]));
    y[i] = x[i] * c - x[i + half] * s;
    y[i + half] = x[i + half] * c + x[i] * s;
  }
  return y;
}

Real as_stored(Real x, DType dtype, double scale) {
  if (dtype == DType::kF32) return x;
  if (dtype == DType::kF8E4M3) {
    const double largest = kE4m3Largest * scale;
    x.value = std::clamp(x.value, -largest, largest);
    Real y = rounded(rounded(x), kE4m3Unit);  // divided by the scale, then rounded
    y.slack += kE4m3Step * scale;
    return y;
  }
  Real y = rounded(x, dtype == DType::kBf16 ? kBf16Unit : kF16Unit);
  if (dtype == DType::kF16) y.slack += kF16Step;
  return y;
}

}  // namespace

Qkv qkv_rope_append(const QkvRopeAppendArgs& args, const Matrix& qkv, InputRounding rounding) {
  const KvGeometry& g = args.kv.geometry;
  Qkv out;
  for (std::int32_t r = 0; r < args.n_rows; ++r) {
    const std::vector<Real> hidden = widen(args.hidden + r * qkv.n_in, qkv.n_in);
    const std::vector<Real> y = multiply(rms_norm(hidden, args.norm, args.norm_eps), qkv, rounding);
    const float* cos = args.rope_cos + std::int64_t{args.positions[r]} * (g.head_dim / 2);
    const float* sin = args.rope_sin + std::int64_t{args.positions[r]} * (g.head_dim / 2);
    for (std::int32_t h = 0; h < args.n_heads + 2 * g.n_kv_heads; ++h) {
      const auto begin = y.begin() + std::int64_t{h} * g.head_dim;
      Head head(begin, begin + g.head_dim);
      const bool is_query = h < args.n_heads;
      const bool is_value = h >= args.n_heads + g.n_kv_heads;
      if (!is_value) {
        const float* norm = is_query ? args.q_norm : args.k_norm;
        if (norm != nullptr) head = rms_norm(head, norm, args.norm_eps);
        head = rotate(head, cos, sin);
      }
      std::vector<Real>& to = is_query ? out.q : is_value ? out.v : out.k;
      const double scale =
          is_query ? 1.0
                   : kv_scale(args.kv, args.layer, is_value ? KvHalf::kValues : KvHalf::kKeys,
                              (h - args.n_heads) % g.n_kv_heads);
      for (const Real& x : head) to.push_back(is_query ? x : as_stored(x, g.dtype, scale));
    }
  }
  return out;
}

}  // namespace foretoken::ref
