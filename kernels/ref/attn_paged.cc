#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/include/layout.h"
#include "kernels/include/numerics.h"
#include "kernels/ref/ref.h"

namespace foretoken::ref {

double kv_element(const PagedKv& kv, std::size_t offset, std::int32_t i) {
  const std::byte* at =
      kv.blocks + offset + static_cast<std::size_t>(i) * size_bytes(kv.geometry.dtype);
  if (kv.geometry.dtype == DType::kF32) {
    float x;
    std::memcpy(&x, at, sizeof x);
    return static_cast<double>(x);
  }
  if (kv.geometry.dtype == DType::kF8E4M3)
    return static_cast<double>(e4m3_to_f32(static_cast<std::uint8_t>(*at)));
  std::uint16_t h;
  std::memcpy(&h, at, sizeof h);
  return static_cast<double>(kv.geometry.dtype == DType::kBf16 ? bf16_to_f32(h) : f16_to_f32(h));
}

double kv_scale(const PagedKv& kv, std::int32_t layer, KvHalf half, std::int32_t head) {
  if (kv.scales == nullptr) return 1;
  return static_cast<double>(
      kv.scales[kv_scale_index(kv.geometry, layer, half == KvHalf::kValues, head)]);
}

namespace {

struct Place {
  const AttnPagedArgs& args;
  std::int32_t sequence;
  std::int32_t kv_head;
  double at(std::int32_t position, KvHalf half, std::int32_t d) const {
    const KvGeometry& g = args.kv.geometry;
    const std::int32_t block =
        args.block_tables[sequence * args.max_blocks + position / g.block_tokens];
    return kv_element(args.kv,
                      kv_offset(g, block, position % g.block_tokens, args.layer, half, kv_head),
                      d) *
           kv_scale(args.kv, args.layer, half, kv_head);
  }
};

// What multiplying costs beside f32: relative roundings of queries and of weights.
struct OperandUnits {
  double query = 0, weight = 0;
};

// One query head of one row. Slack: a score may be off by its dot product's rounding, which
// multiplies its weight; the sums of weights and of weighted values add up to n roundings each, and
// every step of an online softmax a few more.
void attend(
    const Place& place, const float* q, std::int32_t position, OperandUnits units, Real* out) {
  const std::int32_t head_dim = place.args.kv.geometry.head_dim;
  const double scale = static_cast<double>(place.args.scale);
  const std::int32_t n = position + 1;
  std::vector<double> score(static_cast<std::size_t>(n));
  double worst = 0;
  for (std::int32_t t = 0; t < n; ++t) {
    double sum = 0, magnitude = 0;
    for (std::int32_t d = 0; d < head_dim; ++d) {
      const double term = static_cast<double>(q[d]) * place.at(t, KvHalf::kKeys, d);
      sum += term;
      magnitude += std::fabs(term);
    }
    score[static_cast<std::size_t>(t)] = scale * sum;
    worst =
        std::max(worst, std::fabs(scale) * ((head_dim + 4) * kF32Unit + units.query) * magnitude);
  }
  const double highest = *std::max_element(score.begin(), score.end());
  double total = 0;
  for (double& s : score) total += s = std::exp(s - highest);
  // Subtracting the maximum rounds too, by a unit of the distance; beyond 100 the weight is
  // nothing.
  const double weight_error = std::expm1(2 * worst + 100 * kF32Unit) + 8 * kF32Unit +
                              4 * (std::floor(static_cast<double>(n) / 8) + 2) * kF32Unit;
  const double relative = 2 * weight_error + 2 * (n + 4) * kF32Unit + 2 * units.weight;
  for (std::int32_t d = 0; d < head_dim; ++d) {
    double sum = 0, magnitude = 0;
    for (std::int32_t t = 0; t < n; ++t) {
      const double term =
          score[static_cast<std::size_t>(t)] / total * place.at(t, KvHalf::kValues, d);
      sum += term;
      magnitude += std::fabs(term);
    }
    out[d] = rounded({sum, relative * magnitude});
  }
}

}  // namespace

std::vector<Real> attn_paged(const AttnPagedArgs& args, AttentionOperands operands) {
  const KvGeometry& g = args.kv.geometry;
  const std::int32_t group = args.n_heads / g.n_kv_heads;
  OperandUnits units;
  if (operands == AttentionOperands::kBf16Pairs && g.dtype == DType::kBf16)
    units = {kBf16Unit * kBf16Unit / 4, kBf16Unit / 2};
  std::vector<Real> out(static_cast<std::size_t>(args.n_rows) *
                        static_cast<std::size_t>(args.n_heads * g.head_dim));
  for (std::int32_t s = 0; s < args.n_sequences; ++s)
    for (std::int32_t r = args.row_begin[s]; r < args.row_begin[s + 1]; ++r)
      for (std::int32_t h = 0; h < args.n_heads; ++h) {
        const std::int64_t at = (std::int64_t{r} * args.n_heads + h) * g.head_dim;
        attend({args, s, h / group}, args.q + at, args.positions[r], units, out.data() + at);
      }
  return out;
}

}  // namespace foretoken::ref
