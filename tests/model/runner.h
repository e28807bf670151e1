// Runs sequences through a model on a cache of its own, cut and mixed as a test likes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "common/model/batch_stage.h"
#include "common/model/config.h"
#include "common/model/model.h"
#include "kernels/include/backend.h"

namespace foretoken::test {

struct RunnerOptions {
  std::int32_t block_tokens = 16;
  std::int32_t n_blocks = 64;
  // Sequence blocks lie `stride` apart (modulo n_blocks, coprime): any layout is legal.
  std::int32_t stride = 1;
};

class Runner {
 public:
  Runner(Model& model, Backend& backend, const RunnerOptions& options = {})
      : model_(model), backend_(backend), options_(options), stage_(model, backend) {
    kv_.geometry = model.kv_geometry(options.block_tokens);
    kv_.n_blocks = options.n_blocks;
    blocks_ =
        backend.allocate(kv_.geometry.block_bytes() * static_cast<std::size_t>(options.n_blocks));
    kv_.blocks = blocks_.as<std::byte>();
  }

  // A sequence's place in the cache; grows as tokens come.
  struct Sequence {
    std::vector<std::int32_t> table;
    std::uint32_t length = 0;
  };

  struct Part {
    Sequence* sequence;
    std::span<const TokenId> tokens;
  };

  // One pass; logits of every row, in the order of the parts.  [n_rows][vocab]
  std::vector<std::vector<float>> pass(std::span<const Part> parts) {
    ForwardBatch batch;
    for (const Part& part : parts) {
      Sequence& sequence = *part.sequence;
      const auto n = static_cast<std::uint32_t>(part.tokens.size());
      const auto block_tokens = static_cast<std::uint32_t>(options_.block_tokens);
      while (sequence.table.size() * block_tokens < sequence.length + n)
        sequence.table.push_back(next_block());
      batch.slices.push_back(
          {static_cast<std::uint32_t>(batch.tokens.size()), n, sequence.length, sequence.table});
      batch.tokens.insert(batch.tokens.end(), part.tokens.begin(), part.tokens.end());
      sequence.length += n;
    }
    batch.logit_rows.resize(batch.tokens.size());
    std::iota(batch.logit_rows.begin(), batch.logit_rows.end(), 0);
    const auto vocab = static_cast<std::size_t>(model_.config().vocab_size);
    const std::size_t bytes = batch.tokens.size() * vocab * sizeof(float);
    if (logits_.size_bytes() < bytes) logits_ = backend_.allocate(bytes);
    model_.forward(stage_.upload(batch, kv_), kv_, logits_.as<float>());
    std::vector<float> flat(batch.tokens.size() * vocab);
    backend_.download(flat.data(), logits_.as<float>(), bytes);
    std::vector<std::vector<float>> rows;
    for (std::size_t r = 0; r < batch.tokens.size(); ++r)
      rows.emplace_back(flat.begin() + static_cast<std::ptrdiff_t>(r * vocab),
                        flat.begin() + static_cast<std::ptrdiff_t>((r + 1) * vocab));
    return rows;
  }

  // A whole sequence in chunks of `chunk` rows; logits of every position.
  std::vector<std::vector<float>> run(std::span<const TokenId> tokens, std::size_t chunk) {
    Sequence sequence;
    std::vector<std::vector<float>> all;
    for (std::size_t begin = 0; begin < tokens.size(); begin += chunk) {
      const Part part{&sequence, tokens.subspan(begin, std::min(chunk, tokens.size() - begin))};
      for (auto& row : pass(std::span(&part, 1))) all.push_back(std::move(row));
    }
    return all;
  }

 private:
  std::int32_t next_block() {
    const std::int32_t block = (n_taken_++ * options_.stride + 3) % options_.n_blocks;
    return block;
  }

  Model& model_;
  Backend& backend_;
  RunnerOptions options_;
  BatchStage stage_;
  Buffer blocks_;
  Buffer logits_;
  PagedKv kv_;
  std::int32_t n_taken_ = 0;
};

inline TokenId argmax(std::span<const float> logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace foretoken::test
