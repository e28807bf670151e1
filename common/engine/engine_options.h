// Settings of the two engines, plain and complete: services fill them from their configuration
// once, at start.
#pragma once

#include <cstdint>
#include <memory>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/engine/scheduler.h"
#include "common/grammar/constraint.h"
#include "common/kv/kv_cache.h"
#include "common/spec/draft_length.h"

namespace foretoken {

struct TargetEngineOptions {
  KvCacheConfig kv;  // n_blocks: kv_blocks() of common/kv/kv_size.h
  std::int32_t max_running = 16;
  std::int32_t max_waiting = 256;
  std::int32_t max_batch_rows = 512;  // rows of one pass
  std::int32_t prefill_chunk = 256;   // of which prompt rows
  // Of which rows whose log-probability is asked for; 0 = those whose logits take 64 MiB.
  std::int32_t max_forced_rows = 0;
  Duration max_step{};  // with prompts beside answers, see pass_time(); 0: no bound
  AdmissionPolicy policy = AdmissionPolicy::kMaxUtilization;
  // Prompt and answer; 0 = the model's. One such sequence must fit the cache.
  Position max_model_len = 0;
  std::int32_t n_valid_ids = 0;  // ids from here on are padding of the model's rows; 0 = none are
  PrefixHash prefix_root = 0;    // prefix_hash_root(model, vocabulary) of this target
  std::shared_ptr<Constraints> constraints;  // of the vocabulary; null: grammars are refused
  DraftLengthConfig draft_length;
  // Most that wait_hint() says, or a step and a half where that is more; over ranks never more than
  // half of their patience.
  Duration wait_limit = std::chrono::milliseconds(20);
};

struct DraftEngineOptions {
  KvCacheConfig kv;
  std::int32_t max_sequences = 64;  // sequences held
  std::int32_t max_batch_rows = 512;
  std::int32_t prefill_chunk = 256;
  Duration max_step{};                       // of a pass with a prompt; 0: no bound
  Position max_model_len = 0;                // 0 = the model's; beyond it the draft falls silent
  std::int32_t n_valid_ids = 0;              // as above
  std::shared_ptr<Constraints> constraints;  // as above
  std::uint32_t max_ahead = 32;              // longest chain beyond what is committed
  // Guesses that an answered sequence goes on with, unasked, while no answer is owed; 0: none. Then
  // each is sent as it is made, those of an answer too. Where draft and target share cores it costs
  // the target time. set_run_ahead() decides otherwise for a target.
  std::uint32_t run_ahead = 0;
  // Rows of a pass for branches of sequences that go on so, of all sequences together: texts in
  // which a guess is wrong and a runner-up comes instead. Fewer where a pass would be dearer by
  // more than a fifth; none where the device takes several steps before the host listens.
  std::uint32_t branch_rows = 0;
  // Most steps the device takes before the host listens again; 0: max_ahead where steps are
  // recorded, 1 elsewhere, since there a step costs what it costs and a correction can save one.
  std::uint32_t max_chained = 0;
  Duration lease = std::chrono::seconds(10);  // without a word from its target a sequence is freed
  Duration retry_after = std::chrono::milliseconds(250);  // said with Busy
};

}  // namespace foretoken
