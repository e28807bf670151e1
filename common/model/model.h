// Model: token ids and a paged KV cache in, logits out. Forward and nothing else: blind to
// sampling, scheduling and sockets. The engine owns the cache's memory and decides which rows want
// logits. One thread uses a model.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "kernels/include/types.h"

namespace foretoken {

struct ModelConfig;  // common/model/config.h
class Collective;    // common/collective/collective.h

// The ids a rank has logits of, where a model is spread over several.
struct VocabularySlice {
  std::int32_t first_id = 0;
  std::int32_t n_ids = 0;
};

// The rows one sequence brings to a pass: n_rows consecutive tokens from position `start` on.
// Decoding brings one, verification K + 1, a prefill chunk as many as it likes: the same path for
// all of them.
struct SequenceSlice {
  std::uint32_t first_row = 0;  // slices follow one another without gaps
  std::uint32_t n_rows = 0;
  Position start = 0;                         // K and V of 0 .. start-1 are in the cache already
  std::span<const std::int32_t> block_table;  // covers positions 0 .. start + n_rows + n_ahead - 1
  std::uint32_t n_ahead = 0;                  // positions that later steps of one chain will fill
};

struct ForwardBatch {
  std::vector<TokenId> tokens;  // [n_rows]
  std::vector<SequenceSlice> slices;
  std::vector<std::int32_t> logit_rows;  // rows whose logits are wanted, ascending
};

// A batch in device memory. Zero rows: nothing to do.
struct StagedBatch {
  std::int32_t n_rows = 0;
  std::int32_t n_sequences = 0;
  std::int32_t n_logit_rows = 0;
  std::int32_t max_blocks = 0;
  const std::int32_t* tokens = nullptr;        // [n_rows]
  const std::int32_t* positions = nullptr;     // [n_rows]
  const std::int32_t* slots = nullptr;         // [n_rows]
  const std::int32_t* row_begin = nullptr;     // [n_sequences + 1]
  const std::int32_t* logit_rows = nullptr;    // [n_logit_rows]
  const std::int32_t* block_tables = nullptr;  // [n_sequences, max_blocks]
};

class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelConfig& config() const = 0;
  virtual KvGeometry kv_geometry(std::int32_t block_tokens) const = 0;
  // Fingerprint of config, tensor names, shapes, dtypes and contents: equal means the same function
  // of tokens.
  virtual Fingerprint fingerprint() const = 0;
  virtual std::size_t weight_bytes() const = 0;
  // Most rows one pass can take; larger prefill chunks are the caller's to cut.
  virtual std::int32_t max_rows() const = 0;

  // The ranks this model is spread over; every one of them runs the same passes. Null: it is whole.
  virtual Collective* ranks() const { return nullptr; }
  // How their shares are summed, in words for people; empty for a model that is whole.
  virtual std::string rank_sums() const { return ""; }
  // With ranks: whose logits forward() gives, and the width of its rows.
  virtual VocabularySlice vocabulary_slice() const { return {}; }

  // Writes K and V of all rows into their blocks and logits[i] for batch.logit_rows[i]. Without
  // ranks it asks for ops alone, so it may be recorded.
  // kv.scales are left null: a model knows its own.
  // logits: device address, [batch.n_logit_rows, config().vocab_size], or the slice's width.
  virtual void forward(const StagedBatch& batch, const PagedKv& kv, float* logits) = 0;
};

}  // namespace foretoken
