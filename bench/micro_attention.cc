#include "bench/micro_attention.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <random>
#include <utility>

#include "bench/timing.h"
#include "kernels/include/numerics.h"

namespace foretoken::bench {
namespace {

// By turns, so that a long context comes from memory; a prompt reads its keys again and again.
constexpr std::size_t kMostLayers = 16, kPromptLayers = 2;
constexpr std::size_t kMostCacheBytes = std::size_t{1} << 30;
constexpr std::int32_t kBlockTokens = 16;
constexpr std::int32_t kPromptRows = 512;

// Keys, values and queries are random; blocks of a sequence lie apart.
class Contexts {
 public:
  Contexts(Backend& backend, const LayerShape& layer, AttentionCost shape)
      : backend_(backend), n_heads_(layer.n_heads), head_dim_(layer.head_dim), shape_(shape) {
    const std::int32_t n_blocks_each = (shape.context + kBlockTokens - 1) / kBlockTokens;
    const std::int32_t n_rows = shape.n_sequences * shape.n_rows;
    kv_ = {{DType::kBf16, 1, layer.n_kv_heads, head_dim_, kBlockTokens},
           nullptr,
           shape.n_sequences * n_blocks_each};
    const std::size_t layer_bytes =
        kv_.geometry.block_bytes() * static_cast<std::size_t>(kv_.n_blocks);
    const bool is_prompt = shape.n_rows >= kPromptRows;
    kv_.geometry.n_layers = static_cast<std::int32_t>(std::clamp<std::size_t>(
        kMostCacheBytes / layer_bytes, 1, is_prompt ? kPromptLayers : kMostLayers));
    blocks_ = backend.allocate(kv_.geometry.block_bytes() * static_cast<std::size_t>(kv_.n_blocks));
    kv_.blocks = blocks_.as<std::byte>();
    std::mt19937 rng(3);
    std::uniform_real_distribution<float> uniform(-1, 1);
    std::vector<std::uint16_t> some(65521);
    for (std::uint16_t& x : some) x = f32_to_bf16(uniform(rng));
    auto* const elements = blocks_.as<std::uint16_t>();
    for (std::size_t i = 0; i < blocks_.size_bytes() / 2; ++i) elements[i] = some[i % some.size()];
    const std::size_t n_query =
        static_cast<std::size_t>(std::int64_t{n_rows} * n_heads_ * head_dim_);
    q_ = backend.allocate(n_query * sizeof(float));
    out_ = backend.allocate(n_query * sizeof(float));
    for (std::size_t i = 0; i < n_query; ++i) q_.as<float>()[i] = uniform(rng);
    for (std::int32_t s = 0; s < shape.n_sequences; ++s) {
      row_begin_.push_back(s * shape.n_rows);
      for (std::int32_t r = shape.n_rows; r > 0; --r) positions_.push_back(shape.context - r);
    }
    row_begin_.push_back(n_rows);
    tables_.resize(static_cast<std::size_t>(kv_.n_blocks));
    std::iota(tables_.begin(), tables_.end(), 0);
    std::shuffle(tables_.begin(), tables_.end(), rng);
  }

  void layer(std::int32_t layer) {
    backend_.attn_paged({.q = q_.as<float>(),
                         .n_rows = row_begin_.back(),
                         .n_heads = n_heads_,
                         .positions = positions_.data(),
                         .n_sequences = shape_.n_sequences,
                         .row_begin = row_begin_.data(),
                         .block_tables = tables_.data(),
                         .max_blocks = kv_.n_blocks / shape_.n_sequences,
                         .kv = kv_,
                         .layer = layer,
                         .scale = 0.125f,
                         .out = out_.as<float>()});
  }
  std::int32_t n_layers() const { return kv_.geometry.n_layers; }
  double operations() const {
    double n_pairs = 0;  // of a row and a position that it sees
    for (const std::int32_t position : positions_) n_pairs += position + 1;
    return 4 * n_pairs * n_heads_ * head_dim_;
  }

 private:
  Backend& backend_;
  std::int32_t n_heads_, head_dim_;
  AttentionCost shape_;
  PagedKv kv_;
  Buffer blocks_, q_, out_;
  std::vector<std::int32_t> row_begin_, positions_, tables_;
};

}  // namespace

double peak_gop_s(double (*peak)(std::int64_t), cpu::Team& team) {
  std::vector<double> done(static_cast<std::size_t>(team.size()));
  const std::int64_t n = 2000000;
  const double seconds = seconds_of(
      [&] { team.run([&](int member) { done[static_cast<std::size_t>(member)] = peak(n); }); });
  return std::accumulate(done.begin(), done.end(), 0.0) / seconds / 1e9;
}

std::vector<AttentionCost> measure_attention(Backend& backend,
                                             const MicroOptions& options,
                                             const Probe& probe,
                                             cpu::Team& team) {
  std::vector<AttentionCost> costs;
  for (const std::int32_t context : options.contexts)
    for (const auto& [n_sequences, most_rows] :
         {std::pair{1, 1}, {1, 5}, {8, 1}, {1, kPromptRows}}) {
      const std::int32_t n_rows = std::min(most_rows, context);
      AttentionCost cost{.n_sequences = n_sequences, .n_rows = n_rows, .context = context};
      Contexts contexts(backend, options.shape, cost);
      contexts.layer(0);
      const std::int32_t n_layers = contexts.n_layers();
      std::vector<double> times, rates, shares;
      for (int round = 0; round < options.n_rounds; ++round) {
        const double peak_before = peak_gop_s(probe.peak_f32, team);
        const double seconds = seconds_of([&] {
          for (std::int32_t i = 0; i < n_layers; ++i) contexts.layer(i);
        });
        const double peak = (peak_before + peak_gop_s(probe.peak_f32, team)) / 2;
        const double rate = contexts.operations() * n_layers / seconds / 1e9;
        times.push_back(1e3 * seconds / n_layers);
        rates.push_back(rate);
        shares.push_back(rate / peak);
      }
      cost.milliseconds = median(times);
      cost.gop_s = median(rates);
      cost.of_peak = median(shares);
      costs.push_back(cost);
    }
  return costs;
}

}  // namespace foretoken::bench
