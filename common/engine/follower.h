// How rank 0 and the other ranks of one model stay in step. Rank 0 alone knows requests; before
// each pass it sends its plan as plain data, and every rank runs that. Followers decide nothing:
// block tables and copies are in the plan, so the caches are the same everywhere. While there is
// nothing to run, rank 0 asks now and then whether all are there: a stopped rank is invisible
// otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/engine/plan_runner.h"
#include "common/engine/step_plan.h"

namespace foretoken {

enum class RankWord : std::uint32_t { kCache, kPlan, kCheckRanks, kEnd };

// [word][counts][arrays as they lie in memory]: all ranks are the same executable.
std::vector<std::byte> pack_plan(const StepPlan& plan);
// An error, never more: bytes that are no plan say that ranks differ.
Result<void> unpack_plan(std::span<const std::byte> bytes, StepPlan& plan);

// Rank 0's side. Without ranks it does nothing.
class Leader {
 public:
  Leader(Collective* ranks, const CacheShape& shape);
  void send(const StepPlan& plan);
  // Between steps, as often as the caller likes: asks once a second, and four times in the patience
  // of the collective, which is that of the other ranks too. Throws FatalError(kUnavailable) if one
  // is silent for longer than that.
  void check_ranks(TimePoint now);
  // The most that may pass between two messages to the other ranks, well within their patience;
  // Duration::max() without ranks or without a limit.
  Duration longest_silence() const;
  // Followers return from follow(). Nothing may be sent afterwards.
  void end();

 private:
  void say(RankWord word);

  Collective* ranks_;
  std::vector<std::byte> message_;
  TimePoint last_call_{};
};

// The life of every other rank: returns when rank 0 says so, throws when it says nothing for
// longer than `patience`, counted from its first word.
void follow(Model& model, Backend& backend, Duration patience);

}  // namespace foretoken
