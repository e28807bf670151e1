// BatchStage: a ragged batch on its way to the device. Checks it against the model's limits, works
// out every row's slot, and lays all integers side by side, so that one upload carries them. For
// equal counts and an equal number of table columns everything lies at equal addresses as long as
// address() does not change: what a recording needs. Owns the staging memory. One thread.
#pragma once

#include <cstdint>
#include <vector>

#include "common/model/model.h"
#include "kernels/include/backend.h"

namespace foretoken {

class BatchStage {
 public:
  BatchStage(const Model& model, Backend& backend);

  // Valid until the next call. `kv`: where the blocks are.
  StagedBatch upload(const ForwardBatch& batch, const PagedKv& kv);
  const void* address() const { return device_.as<void>(); }

 private:
  // Where the parts of the array lie, in elements. The tables come first: the steps of a chain read
  // them too, whatever rows its first pass had.
  struct Layout {
    std::size_t row_begin, tokens, positions, slots, logit_rows, end;
    std::size_t max_blocks;
  };
  Layout lay_out(const ForwardBatch& batch, std::int32_t block_tokens) const;
  void put_rows(const ForwardBatch& batch, const PagedKv& kv, const Layout& at);

  const Model& model_;
  Backend& backend_;
  Buffer device_;  // grows, seldom
  std::vector<std::int32_t> host_;
};

}  // namespace foretoken
