#include "common/model/decoder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/base/check.h"
#include "common/model/shard.h"

namespace foretoken {
namespace {

std::size_t floats(std::int32_t rows, std::int64_t columns) {
  return sizeof(float) * static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns);
}

// Linears that share their input.
constexpr std::string_view kQkv[] = {"self_attn.q_proj.weight", "self_attn.k_proj.weight",
                                     "self_attn.v_proj.weight"};
constexpr std::string_view kOut[] = {"self_attn.o_proj.weight"};
constexpr std::string_view kGateUp[] = {"mlp.gate_proj.weight", "mlp.up_proj.weight"};
constexpr std::string_view kDown[] = {"mlp.down_proj.weight"};

}  // namespace

std::size_t decoder_scratch_bytes(const ModelConfig& c, std::int32_t max_rows, int n_ranks) {
  const std::int64_t q = std::int64_t{c.n_heads} * c.head_dim;
  const std::int64_t beside = n_ranks > 1 ? 3 * c.n_hidden : squares_per_row(c.n_hidden);
  return floats(max_rows, c.n_hidden + beside) + 2 * floats(max_rows, q) +
         floats(max_rows, c.n_ffn) + c.head_ids.size() * sizeof(std::int32_t) +
         floats(max_rows, std::ssize(c.head_ids));
}

Decoder::Decoder(ModelConfig config,
                 DecoderWeights weights,
                 Backend& backend,
                 const DecoderOptions& options)
    : config_(std::move(config)),
      own_(options.ranks == nullptr
               ? config_
               : share_of(config_, {options.ranks->rank(), options.ranks->size()})),
      weights_(std::move(weights)),
      backend_(backend),
      options_(options) {
  const std::int64_t q = std::int64_t{own_.n_heads} * own_.head_dim;
  hidden_ = backend_.allocate(floats(options_.max_rows, config_.n_hidden));
  q_ = backend_.allocate(floats(options_.max_rows, q));
  attention_ = backend_.allocate(floats(options_.max_rows, q));
  ffn_ = backend_.allocate(floats(options_.max_rows, own_.n_ffn));
  if (const std::span<const TokenId> ids = config_.head_ids; !ids.empty()) {
    FORETOKEN_CHECK(options_.ranks == nullptr, "not_shardable() is asked first");
    head_ids_ = backend_.allocate(ids.size_bytes());
    backend_.upload(head_ids_.as<TokenId>(), ids.data(), ids.size_bytes());
    head_logits_ = backend_.allocate(floats(options_.max_rows, std::ssize(ids)));
  }
  if (options_.ranks == nullptr) {
    squares_ = backend_.allocate(floats(options_.max_rows, squares_per_row(config_.n_hidden)));
    return;
  }
  partial_ = backend_.allocate(hidden_.size_bytes());
  Collective& ranks = *options.ranks;
  sums_ = backend_.join_ranks(
      {.rank = ranks.rank(),
       .n_ranks = ranks.size(),
       .most_floats = std::int64_t{options_.max_rows} * config_.n_hidden,
       .tier = options_.rank_tier,
       .gather = [&ranks](std::span<const std::byte> mine) { return ranks.gather(mine); }});
  if (sums_ != nullptr) return;
  host_hidden_.resize(hidden_.size_bytes() / sizeof(float));
  host_partial_.resize(host_hidden_.size());
}

VocabularySlice Decoder::vocabulary_slice() const {
  const Collective* ranks = options_.ranks;
  if (ranks == nullptr) return {};
  const Range ids = foretoken::vocabulary_slice(config_.vocab_size, {ranks->rank(), ranks->size()});
  return {static_cast<std::int32_t>(ids.begin), static_cast<std::int32_t>(ids.n())};
}

std::string Decoder::rank_sums() const {
  if (options_.ranks == nullptr) return "";
  return sums_ == nullptr ? "host memory" : sums_->description();
}

KvGeometry Decoder::kv_geometry(std::int32_t block_tokens) const {
  return {.dtype = options_.kv_dtype,
          .n_layers = config_.n_layers,
          .n_kv_heads = own_.n_kv_heads,
          .head_dim = own_.head_dim,
          .block_tokens = block_tokens};
}

void Decoder::forward(const StagedBatch& batch, const PagedKv& cache, float* logits) {
  if (batch.n_rows == 0) return;
  FORETOKEN_CHECK(cache.scales == nullptr, "the scales of a cache are its model's");
  PagedKv kv = cache;
  kv.scales = weights_.kv_scales.as<float>();
  backend_.embed({.table = &weights_.embedding,
                  .tokens = batch.tokens,
                  .n_rows = batch.n_rows,
                  .hidden = hidden_.as<float>(),
                  .squares = squares_.as<float>()});
  if (options_.ranks != nullptr && sums_ == nullptr)
    backend_.download(host_hidden_.data(), hidden_.as<float>(),
                      floats(batch.n_rows, config_.n_hidden));
  run_layers(batch, kv);
  run_head(batch, logits);
}

void Decoder::run_head(const StagedBatch& batch, float* logits) {
  const bool is_trimmed = !config_.head_ids.empty();
  backend_.lm_head({.hidden = hidden_.as<float>(),
                    .rows = batch.logit_rows,
                    .n_rows = batch.n_logit_rows,
                    .norm = weights_.final_norm.as<float>(),
                    .norm_eps = config_.rms_norm_eps,
                    .head = &head(),
                    .logits = is_trimmed ? head_logits_.as<float>() : logits,
                    .squares = squares_.as<float>(),
                    .next = &weights_.layers.front().qkv});
  if (!is_trimmed) return;
  backend_.spread({.logits = head_logits_.as<float>(),
                   .n_rows = batch.n_logit_rows,
                   .n_columns = static_cast<std::int32_t>(config_.head_ids.size()),
                   .ids = head_ids_.as<std::int32_t>(),
                   .vocab = config_.vocab_size,
                   .out = logits});
}

// Each layer adds two things to the residual stream: what its heads gathered from earlier tokens,
// and what its gated feed-forward makes of the result.
void Decoder::run_layers(const StagedBatch& batch, const PagedKv& kv) {
  const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config_.head_dim)));
  for (std::int32_t layer = 0; layer < config_.n_layers; ++layer) {
    const LayerWeights& w = weights_.layers[static_cast<std::size_t>(layer)];
    observe({layer, kQkv, hidden_.as<float>(), w.input_norm.as<float>(), batch.n_rows, w.qkv.n_in});
    backend_.qkv_rope_append({.hidden = hidden_.as<float>(),
                              .n_rows = batch.n_rows,
                              .norm = w.input_norm.as<float>(),
                              .norm_eps = config_.rms_norm_eps,
                              .qkv = &w.qkv,
                              .q_norm = w.q_norm.as<float>(),
                              .k_norm = w.k_norm.as<float>(),
                              .n_heads = own_.n_heads,
                              .rope_cos = weights_.rope_cos.as<float>(),
                              .rope_sin = weights_.rope_sin.as<float>(),
                              .n_positions = static_cast<std::int32_t>(config_.max_model_len),
                              .positions = batch.positions,
                              .slots = batch.slots,
                              .kv = kv,
                              .layer = layer,
                              .q = q_.as<float>(),
                              .squares = squares_.as<float>(),
                              .next = &w.o});
    backend_.attn_paged({.q = q_.as<float>(),
                         .n_rows = batch.n_rows,
                         .n_heads = own_.n_heads,
                         .positions = batch.positions,
                         .n_sequences = batch.n_sequences,
                         .row_begin = batch.row_begin,
                         .block_tables = batch.block_tables,
                         .max_blocks = batch.max_blocks,
                         .kv = kv,
                         .layer = layer,
                         .scale = scale,
                         .out = attention_.as<float>()});
    observe({layer, kOut, attention_.as<float>(), nullptr, batch.n_rows, w.o.n_in});
    add_product(attention_, w.o, batch.n_rows, &w.gate_up);
    observe({layer, kGateUp, hidden_.as<float>(), w.post_norm.as<float>(), batch.n_rows,
             w.gate_up.n_in});
    backend_.gate_up_swiglu({.hidden = hidden_.as<float>(),
                             .n_rows = batch.n_rows,
                             .norm = w.post_norm.as<float>(),
                             .norm_eps = config_.rms_norm_eps,
                             .gate_up = &w.gate_up,
                             .out = ffn_.as<float>(),
                             .squares = squares_.as<float>(),
                             .next = &w.down});
    observe({layer, kDown, ffn_.as<float>(), nullptr, batch.n_rows, w.down.n_in});
    const bool is_last = layer + 1 == config_.n_layers;
    add_product(ffn_, w.down, batch.n_rows,
                is_last ? &head() : &weights_.layers[static_cast<std::size_t>(layer) + 1].qkv);
  }
}

void Decoder::observe(const LinearInput& input) {
  if (options_.observer != nullptr) options_.observer->see(input);
}

// The residual stream plus x Wᵀ. Of several ranks each has a share of every sum: these are added in
// rank order, then to the stream, on every rank alike, so that all go on with the same bits.
void Decoder::add_product(const Buffer& x,
                          const Linear& weight,
                          std::int32_t n_rows,
                          const Linear* next) {
  MatmulResidualArgs args{.x = x.as<float>(),
                          .n_rows = n_rows,
                          .weight = &weight,
                          .residual = hidden_.as<float>(),
                          .squares = squares_.as<float>(),
                          .next = next};
  if (options_.ranks == nullptr) return backend_.matmul_residual(args);
  args.partial = partial_.as<float>();
  backend_.matmul_residual(args);
  const std::size_t n =
      static_cast<std::size_t>(n_rows) * static_cast<std::size_t>(config_.n_hidden);
  if (sums_ != nullptr)
    return sums_->add(partial_.as<float>(), hidden_.as<float>(), static_cast<std::int64_t>(n));
  const auto part = std::span(host_partial_).first(n);
  backend_.download(part.data(), partial_.as<float>(), part.size_bytes());
  options_.ranks->sum_rows(part, part);
  for (std::size_t i = 0; i < n; ++i) host_hidden_[i] += part[i];
  backend_.upload(hidden_.as<float>(), host_hidden_.data(), part.size_bytes());
}

}  // namespace foretoken
