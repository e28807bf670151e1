// The decoder of the Llama shape: embedding, layers of attention and SwiGLU on a residual stream,
// head. Families are data (families.h); this is the one forward pass. Owns its weights and scratch
// on the device; borrows the KV cache.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/collective/collective.h"
#include "common/model/config.h"
#include "common/model/linear_inputs.h"
#include "common/model/model.h"
#include "kernels/include/backend.h"

namespace foretoken {

struct LayerWeights {
  Buffer input_norm;  // [n_hidden]
  Linear qkv;         // [(n_heads + 2 n_kv_heads) * head_dim, n_hidden]
  Buffer q_norm;      // [head_dim], empty without qk_norm
  Buffer k_norm;
  Linear o;          // [n_hidden, n_heads * head_dim]
  Buffer post_norm;  // [n_hidden]
  Linear gate_up;    // [2 n_ffn, n_hidden]
  Linear down;       // [n_hidden, n_ffn]
};

struct DecoderWeights {
  Linear embedding;  // [vocab, n_hidden]
  // [vocab or this rank's slice or the config's head_ids, n_hidden]; n_out 0: the embedding is the
  // head
  Linear head;
  Buffer final_norm;
  std::vector<LayerWeights> layers;
  Buffer rope_cos;  // [max_model_len, head_dim / 2]
  Buffer rope_sin;
  Buffer kv_scales;         // [n_layers][K, V][this rank's KV heads]; empty: all are one
  std::size_t n_bytes = 0;  // of all linears and norms on the device
  std::shared_ptr<const void> packed_file;  // keeps the file that was written of them, if any
};

struct DecoderOptions {
  DType kv_dtype = DType::kF32;
  std::int32_t max_rows = 512;
  Fingerprint fingerprint = 0;
  Collective* ranks = nullptr;  // more than one; borrowed. Weights are this rank's slices then
  RankTier rank_tier = RankTier::kAuto;     // how these sum
  LinearInputObserver* observer = nullptr;  // borrowed; for models of one rank
};

class Decoder : public Model {
 public:
  Decoder(ModelConfig config,
          DecoderWeights weights,
          Backend& backend,
          const DecoderOptions& options);

  const ModelConfig& config() const override { return config_; }
  KvGeometry kv_geometry(std::int32_t block_tokens) const override;
  Fingerprint fingerprint() const override { return options_.fingerprint; }
  std::size_t weight_bytes() const override { return weights_.n_bytes; }
  std::int32_t max_rows() const override { return options_.max_rows; }
  Collective* ranks() const override { return options_.ranks; }
  VocabularySlice vocabulary_slice() const override;
  std::string rank_sums() const override;
  void forward(const StagedBatch& batch, const PagedKv& kv, float* logits) override;

 private:
  void run_layers(const StagedBatch& batch, const PagedKv& kv);
  void observe(const LinearInput& input);  // tells the observer, if there is one
  void run_head(const StagedBatch& batch, float* logits);
  // `next`: what the product after this one multiplies with.
  void add_product(const Buffer& x, const Linear& weight, std::int32_t n_rows, const Linear* next);
  const Linear& head() const {
    return weights_.head.n_out > 0 ? weights_.head : weights_.embedding;
  }

  ModelConfig config_;
  ModelConfig own_;  // with the heads and the width that this rank computes
  DecoderWeights weights_;
  Backend& backend_;
  DecoderOptions options_;
  Buffer hidden_;     // [max_rows, n_hidden]: the residual stream
  Buffer squares_;    // of hidden_, as its ops left them; empty where ranks add to the stream
  Buffer q_;          // [max_rows, n_heads, head_dim]
  Buffer attention_;  // [max_rows, n_heads, head_dim]
  Buffer ffn_;        // [max_rows, n_ffn]
  // Of a trimmed head: [head_ids] of the config, and logits of them, [max_rows, head_ids].
  Buffer head_ids_, head_logits_;
  // With ranks: [max_rows, n_hidden] each. Without sums on the device the residual stream is kept
  // on the host as well.
  Buffer partial_;
  std::unique_ptr<RankSums> sums_;
  std::vector<float> host_hidden_, host_partial_;
};

// Bytes of the buffers above, with those on the host; of the config that one rank of so many
// computes with.
std::size_t decoder_scratch_bytes(const ModelConfig& config, std::int32_t max_rows, int n_ranks);

}  // namespace foretoken
