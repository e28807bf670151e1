#include "tests/support/scripted_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/base/check.h"
#include "common/spec/prefix_hash.h"
#include "kernels/include/layout.h"

namespace foretoken {
namespace {

// About normal, from a hash.
float bell(std::uint64_t key) {
  const std::uint64_t bits = mix64(key * 0x9E3779B97F4A7C15ull + 1);
  float sum = 0;
  for (int i = 0; i < 4; ++i)
    sum += static_cast<float>((bits >> (16 * i)) & 0xFFFF) / 65536.0f - 0.5f;
  return sum * 1.73f;
}

// What a slot holds: its token, then its position.
float* place(const PagedKv& kv, std::int32_t slot) {
  const auto block_tokens = static_cast<std::size_t>(kv.geometry.block_tokens);
  const auto block = static_cast<std::size_t>(slot) / block_tokens;
  FORETOKEN_CHECK(block < static_cast<std::size_t>(kv.n_blocks));
  auto* floats = reinterpret_cast<float*>(kv.blocks + block * kv.geometry.block_bytes());
  return floats + 2 * (static_cast<std::size_t>(slot) % block_tokens);
}

}  // namespace

void scripted_logits(const ScriptedOptions& options,
                     std::span<const TokenId> prefix,
                     std::span<float> logits) {
  const PrefixHash all = prefix_hash_extend(options.text_seed, prefix);
  const PrefixHash recent = prefix_hash_extend(
      options.text_seed + 1, prefix.last(std::min<std::size_t>(2, prefix.size())));
  const PrefixHash mistake = mix64(all ^ options.error_seed);
  for (std::size_t v = 0; v < logits.size(); ++v)
    logits[v] = options.spread * bell(recent ^ v) + 0.5f * bell(all ^ v) +
                options.error * bell(mistake ^ v);
}

ScriptedModel::ScriptedModel(const ScriptedOptions& options) : options_(options) {
  config_.n_layers = config_.n_heads = config_.n_kv_heads = 1;
  config_.head_dim = 2;
  config_.vocab_size = options.vocab_size;
  config_.max_model_len = config_.max_position_embeddings = options.max_model_len;
  config_.eos_token_ids = options.eos_token_ids;
}

KvGeometry ScriptedModel::kv_geometry(std::int32_t block_tokens) const {
  return {.dtype = DType::kF32,
          .n_layers = 1,
          .n_kv_heads = 1,
          .head_dim = 2,
          .block_tokens = block_tokens};
}

Fingerprint ScriptedModel::fingerprint() const {
  return mix64(options_.text_seed ^ mix64(options_.error_seed));
}

void ScriptedModel::forward(const StagedBatch& batch, const PagedKv& kv, float* logits) {
  ++n_forwards_;
  most_rows_ = std::max(most_rows_, static_cast<std::size_t>(batch.n_rows));
  const auto vocab = static_cast<std::size_t>(options_.vocab_size);
  // All rows write before any reads, as a layer of a real model does.
  for (std::int32_t row = 0; row < batch.n_rows; ++row) {
    const std::uint32_t words[2] = {static_cast<std::uint32_t>(batch.tokens[row]),
                                    static_cast<std::uint32_t>(batch.positions[row])};
    std::memcpy(place(kv, batch.slots[row]), words, sizeof(words));
  }
  std::int32_t n_done = 0;
  for (std::int32_t s = 0; s < batch.n_sequences; ++s) {
    const std::int32_t* table = batch.block_tables + std::ptrdiff_t{s} * batch.max_blocks;
    for (std::int32_t row = batch.row_begin[s]; row < batch.row_begin[s + 1]; ++row) {
      if (n_done == batch.n_logit_rows || batch.logit_rows[n_done] != row) continue;
      prefix_.clear();
      for (std::int32_t at = 0; at <= batch.positions[row]; ++at) {
        const std::int32_t block_tokens = kv.geometry.block_tokens;
        std::uint32_t words[2];
        std::memcpy(words,
                    place(kv, kv_slot(table[at / block_tokens], at % block_tokens, kv.geometry)),
                    sizeof(words));
        // What was written for another position is not this text's token.
        prefix_.push_back(words[1] == static_cast<std::uint32_t>(at)
                              ? static_cast<TokenId>(words[0])
                              : -1 - static_cast<TokenId>(words[0]));
      }
      const auto done = static_cast<std::size_t>(n_done++);
      scripted_logits(options_, prefix_, std::span(logits + done * vocab, vocab));
    }
  }
  FORETOKEN_CHECK(n_done == batch.n_logit_rows, "logit rows are ascending rows of the batch");
  last_logits_.assign(logits, logits + static_cast<std::size_t>(n_done) * vocab);
}

}  // namespace foretoken
