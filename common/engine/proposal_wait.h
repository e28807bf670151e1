// How long a step is held back for answers that drafts owe: as long as that pays, by what steps
// cost and by what waiting has shown. Where none seems worth it one is tried now and then, because
// what a draft needs while it is waited for cannot be learnt otherwise. Pure: times come as
// arguments. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/base/clock.h"
#include "common/spec/draft_length.h"
#include "common/spec/wait_worth.h"

namespace foretoken {

class ProposalWait {
 public:
  // Borrows both: `length` knows what steps yield and learns how long they were held back. No wait
  // is longer than `limit`, or than a step and a half where that is more.
  ProposalWait(DraftLength& length, const DepthOutcomes& outcomes, Duration limit)
      : length_(length), outcomes_(outcomes), limit_(limit) {}

  // Before a step: the longest wait for what drafts are making that is worth it, and how many
  // tokens it is for; 0 where there are none. `arrives_in` of each is what its link says.
  // n_running: sequences of the step.
  WaitFor begin(std::vector<Expected> owed, std::uint32_t n_running, TimePoint now);
  // The same for who said how many tokens are to be verified, whatever that costs: such a wait
  // teaches nothing.
  Duration begin_longest(std::uint32_t n_running, TimePoint now);

  // At the step: is_owed if a whole answer that begin() is asked about is missing still. Returns
  // how long the step was held back.
  Duration end(bool is_owed, TimePoint now);

 private:
  Duration step(std::uint32_t n_running) const;
  Duration limit(std::uint32_t n_running) const;
  Duration begin_at_most(Duration at_most, TimePoint now);
  WaitFor try_or_not(std::span<const Expected> owed, Duration patience, TimePoint now);
  Duration expected_arrival(Duration by_link) const;
  void learn(bool is_owed, Duration waited);

  static constexpr std::uint32_t kTrialsInARow = 8;

  DraftLength& length_;
  const DepthOutcomes& outcomes_;
  Duration limit_;
  std::uint32_t trials_left_ = kTrialsInARow;  // waits longer than they seem worth
  std::uint32_t n_owed_steps_ = 0;             // since the last trials were granted
  bool is_trial_ = false;
  std::optional<TimePoint> began_;
  bool is_judged_ = false;  // whether that wait was a choice, which can be learnt from
  Duration usual_{};        // until answers that were waited for came; 0: unknown
};

}  // namespace foretoken
