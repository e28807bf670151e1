#include "common/model/sequence_reader.h"

#include <numeric>

#include "common/model/config.h"

namespace foretoken {
namespace {

constexpr std::int32_t kBlockTokens = 16;

}  // namespace

SequenceReader::SequenceReader(Model& model, Backend& backend, std::size_t n_tokens)
    : model_(model), backend_(backend), stage_(model, backend) {
  kv_.geometry = model.kv_geometry(kBlockTokens);
  kv_.n_blocks = static_cast<std::int32_t>((n_tokens + kBlockTokens - 1) / kBlockTokens);
  blocks_ = backend.allocate(kv_.geometry.block_bytes() * static_cast<std::size_t>(kv_.n_blocks));
  kv_.blocks = blocks_.as<std::byte>();
  table_.resize(static_cast<std::size_t>(kv_.n_blocks));
  std::iota(table_.begin(), table_.end(), 0);
}

const std::vector<float>& SequenceReader::next(std::span<const TokenId> tokens, LogitRows rows) {
  ForwardBatch batch;
  batch.tokens.assign(tokens.begin(), tokens.end());
  batch.slices = {{0, static_cast<std::uint32_t>(tokens.size()), length_, table_}};
  const std::size_t n_logits = rows == LogitRows::kAll ? tokens.size() : 1;
  batch.logit_rows.resize(n_logits);
  std::iota(batch.logit_rows.begin(), batch.logit_rows.end(),
            static_cast<std::int32_t>(tokens.size() - n_logits));
  values_.resize(n_logits * static_cast<std::size_t>(model_.config().vocab_size));
  const std::size_t bytes = values_.size() * sizeof(float);
  if (logits_.size_bytes() < bytes) logits_ = backend_.allocate(bytes);
  model_.forward(stage_.upload(batch, kv_), kv_, logits_.as<float>());
  backend_.download(values_.data(), logits_.as<float>(), bytes);
  length_ += static_cast<Position>(tokens.size());
  return values_;
}

}  // namespace foretoken
