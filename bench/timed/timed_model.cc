#include "bench/timed/timed_model.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>

#include "bench/schedule/row_curve.h"
#include "bench/schedule/timed_text.h"
#include "common/base/check.h"
#include "common/base/hash.h"
#include "common/base/result.h"
#include "kernels/include/layout.h"

namespace foretoken::bench {
namespace {

// Logits of the likeliest tokens, over those of all others: the model is sure of 86 %.
constexpr float kPeak = 8;
constexpr std::array<float, kTimedRunnersUp> kRunnerUpPeaks{5, 4, 3};
constexpr std::chrono::microseconds kWokenLate{80};
constexpr std::uint64_t kModelSeed = 0x7e87;

// What a slot holds: its token, then its position.
std::byte* place(const PagedKv& kv, std::int32_t slot) {
  const auto block_tokens = static_cast<std::size_t>(kv.geometry.block_tokens);
  const auto block = static_cast<std::size_t>(slot) / block_tokens;
  FORETOKEN_CHECK(block < static_cast<std::size_t>(kv.n_blocks));
  return kv.blocks + block * kv.geometry.block_bytes() +
         2 * sizeof(std::int32_t) * (static_cast<std::size_t>(slot) % block_tokens);
}

// A thread is woken 30 to 60 us late, a tenth of a draft's pass, and with the usual slack of timers
// another 50: so it wakes early and looks at the clock.
void wait_until(TimePoint end) {
  ::prctl(PR_SET_TIMERSLACK, 1UL);  // of this thread
  std::this_thread::sleep_until(end - kWokenLate);
  while (steady_now() < end) std::this_thread::yield();
}

// Holds the cores that target and draft share.
class Turn {
 public:
  explicit Turn(const Fd& lock) : lock_(lock) {
    while (lock_ && ::flock(lock_.get(), LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  ~Turn() {
    if (lock_) ::flock(lock_.get(), LOCK_UN);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  const Fd& lock_;
};

}  // namespace

TimedModel::TimedModel(const TimedSetting& setting, Draws draws)
    : setting_(setting), draws_(draws) {
  config_.n_layers = config_.n_heads = config_.n_kv_heads = 1;
  config_.head_dim = 2;
  config_.vocab_size = kTimedVocabulary;
  config_.max_model_len = config_.max_position_embeddings = 1 << 16;
  config_.weight_types = "timed 1";
  if (setting_.lock.empty()) return;
  lock_ = Fd(::open(setting_.lock.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
  if (!lock_)
    throw FatalError(ErrorCode::kIo,
                     setting_.lock + " cannot be opened: " + std::string(std::strerror(errno)));
}

KvGeometry TimedModel::kv_geometry(std::int32_t block_tokens) const {
  return {.dtype = DType::kF32,
          .n_layers = 1,
          .n_kv_heads = 1,
          .head_dim = 2,
          .block_tokens = block_tokens};
}

Fingerprint TimedModel::fingerprint() const { return mix64(kModelSeed ^ kTimedVocabulary); }

void TimedModel::forward(const StagedBatch& batch, const PagedKv& kv, float* logits) {
  const Turn turn(lock_);
  const TimePoint begun = steady_now();
  compute(batch, kv, logits);
  const std::chrono::duration<double, std::milli> takes(setting_.pass_ms * row_cost(batch.n_rows));
  wait_until(begun + std::chrono::duration_cast<Duration>(takes));
}

void TimedModel::compute(const StagedBatch& batch, const PagedKv& kv, float* logits) const {
  // All rows write before any reads, as a layer of a real model does.
  for (std::int32_t row = 0; row < batch.n_rows; ++row) {
    const std::array words{batch.tokens[row], batch.positions[row]};
    std::memcpy(place(kv, batch.slots[row]), words.data(), sizeof(words));
  }
  const std::int32_t block_tokens = kv.geometry.block_tokens;
  std::int32_t n_done = 0;
  for (std::int32_t s = 0; s < batch.n_sequences; ++s) {
    const std::int32_t* table = batch.block_tables + std::ptrdiff_t{s} * batch.max_blocks;
    const std::int32_t first = batch.row_begin[s], end = batch.row_begin[s + 1];
    for (std::int32_t row = first; row < end; ++row) {
      if (n_done == batch.n_logit_rows || batch.logit_rows[n_done] != row) continue;
      const std::int32_t position = batch.positions[row];
      const std::int32_t n_last = std::min(kTimedContext, position + 1);
      std::array<TokenId, kTimedContext> last{};
      for (std::int32_t i = 0; i < n_last; ++i) {
        const std::int32_t at = position + 1 - n_last + i;
        std::array<std::int32_t, 2> words{};
        const std::int32_t slot = kv_slot(table[at / block_tokens], at % block_tokens, kv.geometry);
        std::memcpy(words.data(), place(kv, slot), sizeof(words));
        // What was written for another position is not this text's token.
        last[static_cast<std::size_t>(i)] = words[1] == at ? words[0] : -1 - words[0];
      }
      const Likeliest all = likeliest_after(std::span(last).first(static_cast<std::size_t>(n_last)),
                                            setting_.acceptance);
      TokenId token = all.best;
      const bool verifies = row + 1 == end && row > first && batch.positions[first] > 0;
      if (draws_ == Draws::kWrongWhenVerifying && verifies) token = another_token(token, 0);
      float* out = logits + std::ptrdiff_t{n_done++} * kTimedVocabulary;
      std::fill_n(out, kTimedVocabulary, 0.0f);
      for (std::size_t rank = kTimedRunnersUp; rank-- > 0;)
        out[all.runners_up[rank]] = kRunnerUpPeaks[rank];
      out[token] = kPeak;
    }
  }
  FORETOKEN_CHECK(n_done == batch.n_logit_rows, "logit rows are ascending rows of the batch");
}

}  // namespace foretoken::bench
