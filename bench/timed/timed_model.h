// A stand-in for a model, for measuring schedules: it says what bench/schedule/timed_text.h says,
// and a pass sleeps as long as its rows should take. The tokens are read back from the paged cache,
// so that a wrong block shows in the text. Nothing of it is a language model: no figure of it says
// what a real pair accepts. Host memory only. One thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bench/schedule/timed_setting.h"
#include "common/base/clock.h"
#include "common/base/fd.h"
#include "common/model/config.h"
#include "common/model/model.h"

namespace foretoken::bench {

// For tests: a target that draws another token than it should after the last guess it verifies.
enum class Draws : std::uint8_t { kRight, kWrongWhenVerifying };

class TimedModel final : public Model {
 public:
  // Throws FatalError where the lock's file cannot be opened.
  TimedModel(const TimedSetting& setting, Draws draws);
  const ModelConfig& config() const override { return config_; }
  KvGeometry kv_geometry(std::int32_t block_tokens) const override;
  Fingerprint fingerprint() const override;
  std::size_t weight_bytes() const override { return 0; }
  std::int32_t max_rows() const override { return 1 << 16; }
  void forward(const StagedBatch& batch, const PagedKv& kv, float* logits) override;

 private:
  void compute(const StagedBatch& batch, const PagedKv& kv, float* logits) const;

  const TimedSetting setting_;
  const Draws draws_;
  ModelConfig config_;
  Fd lock_;
};

}  // namespace foretoken::bench
