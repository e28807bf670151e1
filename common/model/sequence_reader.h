// A model that reads one sequence, a chunk at a time, in a cache of its own. For what is said of a
// model without serving it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/base/ids.h"
#include "common/model/batch_stage.h"
#include "common/model/model.h"
#include "kernels/include/backend.h"

namespace foretoken {

enum class LogitRows : std::uint8_t { kAll, kLast };

class SequenceReader {
 public:
  SequenceReader(Model& model, Backend& backend, std::size_t n_tokens);

  // At most max_rows() tokens. Returns logits of each, or of the last: [n, vocab].
  const std::vector<float>& next(std::span<const TokenId> tokens, LogitRows rows);

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

}  // namespace foretoken
