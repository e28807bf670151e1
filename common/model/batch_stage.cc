#include "common/model/batch_stage.h"

#include <algorithm>
#include <bit>

#include "common/base/check.h"
#include "common/model/config.h"
#include "kernels/include/layout.h"

namespace foretoken {
namespace {

// Positions that a slice's block table must reach.
std::int64_t n_positions(const SequenceSlice& slice) {
  return std::int64_t{slice.start} + slice.n_rows + slice.n_ahead;
}

std::size_t n_blocks_of(const SequenceSlice& slice, std::int32_t block_tokens) {
  return static_cast<std::size_t>((n_positions(slice) + block_tokens - 1) / block_tokens);
}

}  // namespace

BatchStage::BatchStage(const Model& model, Backend& backend) : model_(model), backend_(backend) {}

StagedBatch BatchStage::upload(const ForwardBatch& batch, const PagedKv& kv) {
  const KvGeometry expected = model_.kv_geometry(kv.geometry.block_tokens);
  FORETOKEN_CHECK(kv.geometry.dtype == expected.dtype &&
                      kv.geometry.n_layers == expected.n_layers &&
                      kv.geometry.n_kv_heads == expected.n_kv_heads &&
                      kv.geometry.head_dim == expected.head_dim,
                  "a KV cache of another shape");
  if (batch.tokens.empty()) return {};
  const Layout at = lay_out(batch, kv.geometry.block_tokens);
  put_rows(batch, kv, at);
  const std::size_t bytes = host_.size() * sizeof(std::int32_t);
  if (device_.size_bytes() < bytes) {
    backend_.synchronize();  // earlier passes may still read the buffer that goes
    device_ = backend_.allocate(std::max({bytes, 2 * device_.size_bytes(), std::size_t{16} << 10}));
  }
  auto* device = device_.as<std::int32_t>();
  backend_.upload(device, host_.data(), bytes);
  return {.n_rows = static_cast<std::int32_t>(batch.tokens.size()),
          .n_sequences = static_cast<std::int32_t>(batch.slices.size()),
          .n_logit_rows = static_cast<std::int32_t>(batch.logit_rows.size()),
          .max_blocks = static_cast<std::int32_t>(at.max_blocks),
          .tokens = device + at.tokens,
          .positions = device + at.positions,
          .slots = device + at.slots,
          .row_begin = device + at.row_begin,
          .logit_rows = device + at.logit_rows,
          .block_tables = device};
}

// Tables have a power of two of columns: contexts of about one length share a shape.
BatchStage::Layout BatchStage::lay_out(const ForwardBatch& batch, std::int32_t block_tokens) const {
  const std::size_t n_rows = batch.tokens.size(), n_sequences = batch.slices.size();
  FORETOKEN_CHECK(n_rows <= static_cast<std::size_t>(model_.max_rows()), "more rows than max_rows");
  std::size_t max_blocks = 1;
  for (const SequenceSlice& slice : batch.slices) {
    FORETOKEN_CHECK(n_positions(slice) <= model_.config().max_model_len,
                    "longer than max_model_len");
    max_blocks = std::max(max_blocks, n_blocks_of(slice, block_tokens));
  }
  Layout at{};
  at.max_blocks = std::bit_ceil(max_blocks);
  at.row_begin = n_sequences * at.max_blocks;
  at.tokens = at.row_begin + n_sequences + 1;
  at.positions = at.tokens + n_rows;
  at.slots = at.positions + n_rows;
  at.logit_rows = at.slots + n_rows;
  at.end = at.logit_rows + batch.logit_rows.size();
  return at;
}

void BatchStage::put_rows(const ForwardBatch& batch, const PagedKv& kv, const Layout& at) {
  const std::int32_t block_tokens = kv.geometry.block_tokens;
  const std::size_t n_rows = batch.tokens.size(), n_sequences = batch.slices.size();
  host_.assign(at.end, 0);
  for (std::size_t r = 0; r < n_rows; ++r) {
    FORETOKEN_CHECK(batch.tokens[r] >= 0 && batch.tokens[r] < model_.config().vocab_size,
                    "token outside the vocabulary");
    host_[at.tokens + r] = batch.tokens[r];
  }
  std::uint32_t row = 0;
  for (std::size_t s = 0; s < n_sequences; ++s) {
    const SequenceSlice& slice = batch.slices[s];
    FORETOKEN_CHECK(slice.first_row == row && slice.n_rows <= n_rows - row,
                    "slices must follow one another");
    host_[at.row_begin + s] = static_cast<std::int32_t>(row);
    const std::size_t n_blocks = n_blocks_of(slice, block_tokens);
    FORETOKEN_CHECK(n_blocks <= slice.block_table.size(), "block table too short");
    for (std::size_t b = 0; b < n_blocks; ++b) {
      FORETOKEN_CHECK(slice.block_table[b] >= 0 && slice.block_table[b] < kv.n_blocks,
                      "block outside the cache");
      host_[s * at.max_blocks + b] = slice.block_table[b];
    }
    for (std::uint32_t i = 0; i < slice.n_rows; ++i, ++row) {
      const auto position = static_cast<std::int32_t>(slice.start + i);
      host_[at.positions + row] = position;
      host_[at.slots + row] =
          kv_slot(slice.block_table[static_cast<std::size_t>(position / block_tokens)],
                  position % block_tokens, kv.geometry);
    }
  }
  FORETOKEN_CHECK(row == n_rows, "every row belongs to a slice");
  host_[at.row_begin + n_sequences] = static_cast<std::int32_t>(row);
  for (std::size_t i = 0; i < batch.logit_rows.size(); ++i) {
    FORETOKEN_CHECK(
        batch.logit_rows[i] >= 0 && batch.logit_rows[i] < static_cast<std::int32_t>(n_rows),
        "logits of a row that is not there");
    host_[at.logit_rows + i] = batch.logit_rows[i];
  }
}

}  // namespace foretoken
