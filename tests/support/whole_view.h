// A model spread over ranks, seen as if one process had it: every rank's forward runs, the slices
// of the logits are put together. What choosing without whole logits must agree with. All ranks use
// theirs in step.
#pragma once

#include <algorithm>
#include <vector>

#include "common/collective/collective.h"
#include "common/model/config.h"
#include "common/model/model.h"
#include "kernels/include/backend.h"

namespace foretoken::test {

class WholeView final : public Model {
 public:
  WholeView(Model& model, Backend& backend) : model_(model), backend_(backend) {}
  const ModelConfig& config() const override { return model_.config(); }
  KvGeometry kv_geometry(std::int32_t block_tokens) const override {
    return model_.kv_geometry(block_tokens);
  }
  Fingerprint fingerprint() const override { return model_.fingerprint(); }
  std::size_t weight_bytes() const override { return model_.weight_bytes(); }
  std::int32_t max_rows() const override { return model_.max_rows(); }

  void forward(const StagedBatch& batch, const PagedKv& kv, float* logits) override {
    if (model_.ranks() == nullptr) return model_.forward(batch, kv, logits);
    Collective& ranks = *model_.ranks();
    const auto width = static_cast<std::size_t>(model_.vocabulary_slice().n_ids);
    const auto vocab = static_cast<std::size_t>(config().vocab_size);
    const auto n_rows = static_cast<std::size_t>(batch.n_logit_rows);
    const Buffer device =
        backend_.allocate(std::max<std::size_t>(1, n_rows * width) * sizeof(float));
    model_.forward(batch, kv, device.as<float>());
    std::vector<float> mine(n_rows * width);
    if (n_rows > 0) backend_.download(mine.data(), device.as<float>(), mine.size() * sizeof(float));
    mine.resize(n_rows * vocab);  // slices differ in width
    const std::int32_t first = model_.vocabulary_slice().first_id;
    const std::vector<std::int32_t> firsts = ranks.gather(std::span<const std::int32_t>(&first, 1));
    const std::vector<float> all = ranks.gather(std::span<const float>(mine));
    std::vector<float> whole(n_rows * vocab);
    for (std::size_t r = 0; r < firsts.size(); ++r) {
      const auto begin = static_cast<std::size_t>(firsts[r]);
      const auto end = r + 1 < firsts.size() ? static_cast<std::size_t>(firsts[r + 1]) : vocab;
      for (std::size_t row = 0; row < n_rows; ++row)
        for (std::size_t id = begin; id < end; ++id)
          whole[row * vocab + id] = all[r * mine.size() + row * (end - begin) + id - begin];
    }
    if (n_rows > 0) backend_.upload(logits, whole.data(), whole.size() * sizeof(float));
  }

 private:
  Model& model_;
  Backend& backend_;
};

}  // namespace foretoken::test
