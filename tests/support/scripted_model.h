// A model for tests whose logits are a pure function of the tokens before, and that really uses its
// paged cache: every row writes its token into its slot and reads the whole prefix back through the
// block table. A wrong block, a missing copy or a stale slot changes its logits. Small vocabulary,
// a text that repeats itself enough for prompt lookup. Host memory only: for the CPU backend.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/model/config.h"
#include "common/model/model.h"

namespace foretoken {

struct ScriptedOptions {
  std::int32_t vocab_size = 48;
  std::int64_t max_model_len = 512;
  std::vector<TokenId> eos_token_ids = {0};
  std::int32_t max_rows = 4096;
  std::uint64_t text_seed = 1;   // what the text is like: shared by a target and its draft
  std::uint64_t error_seed = 0;  // where a draft differs
  float error = 0;               // by how much; 0: the same model
  float spread = 3;              // of the logits
};

// Logits after `prefix`: [vocab_size].
void scripted_logits(const ScriptedOptions& options,
                     std::span<const TokenId> prefix,
                     std::span<float> logits);

class ScriptedModel final : public Model {
 public:
  explicit ScriptedModel(const ScriptedOptions& options);
  const ModelConfig& config() const override { return config_; }
  KvGeometry kv_geometry(std::int32_t block_tokens) const override;
  Fingerprint fingerprint() const override;
  std::size_t weight_bytes() const override { return 0; }
  std::int32_t max_rows() const override { return options_.max_rows; }
  void forward(const StagedBatch& batch, const PagedKv& kv, float* logits) override;

  // Of the last forward: [n_logit_rows, vocab_size].
  std::span<const float> last_logits() const { return last_logits_; }
  std::uint64_t n_forwards() const { return n_forwards_; }
  std::size_t most_rows() const { return most_rows_; }

 private:
  ScriptedOptions options_;
  ModelConfig config_;
  std::vector<TokenId> prefix_;
  std::vector<float> last_logits_;
  std::uint64_t n_forwards_ = 0;
  std::size_t most_rows_ = 0;
};

}  // namespace foretoken
