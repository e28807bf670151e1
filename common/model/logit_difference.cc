#include "common/model/logit_difference.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "common/base/check.h"
#include "common/model/batch_stage.h"
#include "common/model/config.h"

namespace foretoken {
namespace {

constexpr std::int32_t kBlockTokens = 16;

// One sequence in a cache of its own, a chunk at a time.
class Reading {
 public:
  Reading(Model& model, Backend& backend, std::size_t n_tokens)
      : model_(model), backend_(backend), stage_(model, backend) {
    kv_.geometry = model.kv_geometry(kBlockTokens);
    kv_.n_blocks = static_cast<std::int32_t>((n_tokens + kBlockTokens - 1) / kBlockTokens);
    blocks_ = backend.allocate(kv_.geometry.block_bytes() * static_cast<std::size_t>(kv_.n_blocks));
    kv_.blocks = blocks_.as<std::byte>();
    table_.resize(static_cast<std::size_t>(kv_.n_blocks));
    std::iota(table_.begin(), table_.end(), 0);
  }

  // Logits of every token, [tokens.size(), vocab].
  const std::vector<float>& next(std::span<const TokenId> tokens) {
    ForwardBatch batch;
    batch.tokens.assign(tokens.begin(), tokens.end());
    batch.slices = {{0, static_cast<std::uint32_t>(tokens.size()), length_, table_}};
    batch.logit_rows.resize(tokens.size());
    std::iota(batch.logit_rows.begin(), batch.logit_rows.end(), 0);
    values_.resize(tokens.size() * static_cast<std::size_t>(model_.config().vocab_size));
    const std::size_t bytes = values_.size() * sizeof(float);
    if (logits_.size_bytes() < bytes) logits_ = backend_.allocate(bytes);
    model_.forward(stage_.upload(batch, kv_), kv_, logits_.as<float>());
    backend_.download(values_.data(), logits_.as<float>(), bytes);
    length_ += static_cast<Position>(tokens.size());
    return values_;
  }

 private:
  Model& model_;
  Backend& backend_;
  BatchStage stage_;
  PagedKv kv_;
  Buffer blocks_, logits_;
  std::vector<std::int32_t> table_;
  std::vector<float> values_;
  Position length_ = 0;
};

double log_sum_exp(std::span<const float> logits) {
  const double largest = static_cast<double>(*std::ranges::max_element(logits));
  double sum = 0;
  for (float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  return largest + std::log(sum);
}

void add_row(std::span<const float> reference, std::span<const float> other, LogitDifference& d) {
  const auto top = [](std::span<const float> row) {
    return std::ranges::max_element(row) - row.begin();
  };
  ++d.n_positions;
  d.n_same_top += top(reference) == top(other);
  const double reference_total = log_sum_exp(reference), other_total = log_sum_exp(other);
  double mean = 0;
  for (float logit : reference) mean += static_cast<double>(logit);
  mean /= static_cast<double>(reference.size());
  for (std::size_t v = 0; v < reference.size(); ++v) {
    const auto p = static_cast<double>(reference[v]), q = static_cast<double>(other[v]);
    d.rms += (q - p) * (q - p);
    d.rms_reference += (p - mean) * (p - mean);
    d.largest = std::max(d.largest, std::abs(q - p));
    d.mean_kl += std::exp(p - reference_total) * ((p - reference_total) - (q - other_total));
  }
}

}  // namespace

LogitDifference compare_logits(Model& reference,
                               Model& other,
                               Backend& backend,
                               std::span<const TokenId> tokens) {
  FORETOKEN_CHECK(reference.config().vocab_size == other.config().vocab_size);
  const auto vocab = static_cast<std::size_t>(reference.config().vocab_size);
  const auto chunk =
      static_cast<std::size_t>(std::min({reference.max_rows(), other.max_rows(), 64}));
  Reading one(reference, backend, tokens.size()), two(other, backend, tokens.size());
  LogitDifference d;
  for (std::size_t begin = 0; begin < tokens.size(); begin += chunk) {
    const auto part = tokens.subspan(begin, std::min(chunk, tokens.size() - begin));
    const std::span<const float> p = one.next(part), q = two.next(part);
    for (std::size_t row = 0; row < part.size(); ++row)
      add_row(p.subspan(row * vocab, vocab), q.subspan(row * vocab, vocab), d);
  }
  const double n_rows = std::max(1.0, static_cast<double>(d.n_positions));
  const double n_logits = n_rows * static_cast<double>(vocab);
  d.rms = std::sqrt(d.rms / n_logits);
  d.rms_reference = std::sqrt(d.rms_reference / n_logits);
  d.mean_kl /= n_rows;
  return d;
}

}  // namespace foretoken
