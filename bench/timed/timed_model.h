// A stand-in for a model, for measuring schedules: its next token is a hash of the last three, and
// a pass sleeps as long as its rows should take. A draft's is another token with a set probability,
// and then the right one is among its runners-up as often as runner_up_coverage() says.
// The tokens are read back from the paged cache, so that a wrong block shows in the text. Nothing
// of it is a language model: no figure of it says what a real pair accepts. Host memory only. One
// thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "bench/schedule/runner_up_coverage.h"
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
  static constexpr std::int32_t kVocabulary = 256;
  static constexpr std::size_t kRunnersUp = 3;

  // Throws FatalError where the lock's file cannot be opened.
  TimedModel(const TimedSetting& setting, Draws draws);
  const ModelConfig& config() const override { return config_; }
  KvGeometry kv_geometry(std::int32_t block_tokens) const override;
  Fingerprint fingerprint() const override;
  std::size_t weight_bytes() const override { return 0; }
  std::int32_t max_rows() const override { return 1 << 16; }
  void forward(const StagedBatch& batch, const PagedKv& kv, float* logits) override;

  // The token after those; of a text that is shorter than three, all of it.
  TokenId next_token(std::span<const TokenId> last) const;

  struct Likeliest {
    TokenId best = -1;
    std::array<TokenId, kRunnersUp> runners_up{};  // the likelier first
  };
  Likeliest likeliest(std::span<const TokenId> last) const;

 private:
  void compute(const StagedBatch& batch, const PagedKv& kv, float* logits) const;

  const TimedSetting setting_;
  const Draws draws_;
  ModelConfig config_;
  Fd lock_;
};

}  // namespace foretoken::bench
