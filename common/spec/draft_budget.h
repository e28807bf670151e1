// How many tokens a draft is asked for. While a target waits for an answer, each further token of
// it costs a draft's step and stands less often than the one before, so the best number is where
// the tokens of a round, by the time of a round, are most. Learns what a token costs in waiting:
// nothing, where answers are there before the target wants them, and then there is no reason to ask
// for less than the request allows. A draft without an answer in many steps is asked for half as
// many, so that it takes less of the cores that it may share; each answer doubles that again. For
// drafts that send whole answers. Pure: times come as arguments. One thread.
#pragma once

#include <array>
#include <cstdint>

#include "common/base/clock.h"
#include "common/base/sampling_params.h"
#include "common/spec/depth_outcomes.h"
#include "common/spec/step_cost.h"

namespace foretoken {

class DraftBudget {
 public:
  // Borrows `outcomes`, of the same drafts.
  explicit DraftBudget(const DepthOutcomes& outcomes) : outcomes_(outcomes) {}

  // A step that could have waited, once all answers had come: so long it was held back for them,
  // and the longest needed n_made tokens of its draft. A wait that ended without an answer is none:
  // then the draft works beside the target, and long chains pay.
  void observe_wait(Duration waited, std::uint32_t n_made);

  // A step that an answer was still owed at.
  void observe_owed();
  // One has come, perhaps late, and its first token had its turn.
  void observe_answer();

  // The best number for n_sequences in one step, at least 1 and at most `cap`; in one round of
  // eight another one, because what a token costs is only learnt from different numbers.
  std::uint32_t best(std::uint32_t n_sequences, std::uint32_t cap, const StepCost& cost) const;

 private:
  // Of waits over tokens made: fading sums for a straight line through them.
  struct Line {
    double weight = 0, n = 0, seconds = 0, nn = 0, n_seconds = 0, square_seconds = 0;
  };
  // A wait is `fixed` and so much for each token; both in seconds, none below 0.
  struct WaitCost {
    double fixed = 0;
    double per_token = 0;
  };
  struct Step {
    double tokens = 0;  // of a sequence
    double seconds = 0;
  };
  WaitCost wait_cost() const;
  using Steps = std::array<Step, kMaxDraftTokens>;
  Steps steps_of(std::uint32_t n_sequences, std::uint32_t cap, const StepCost& cost) const;

  const DepthOutcomes& outcomes_;
  Line waits_;
  std::uint32_t n_rounds_ = 0;
  std::uint32_t most_ = kMaxDraftTokens;  // while answers do not come, less
  std::uint32_t n_unanswered_ = 0;  // steps that owed, since the last answer or change of most_
};

}  // namespace foretoken
