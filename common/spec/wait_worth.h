// How long a step should be held back for tokens that drafts are making. What comes is not lost
// where the step does not wait: a chain whose first tokens the target chooses by itself goes on, so
// that a pass in the meantime brings a token and often costs nothing. Waiting pays where a chain
// seldom outlasts such a pass, or comes much sooner than the pass ends. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/clock.h"
#include "common/spec/depth_outcomes.h"
#include "common/spec/step_cost.h"

namespace foretoken {

// What the draft of one sequence is making.
struct Expected {
  Duration arrives_in{};        // the next token, or the whole answer
  Duration per_token{};         // of those after it; 0: all come at once
  std::uint32_t n_at_hand = 0;  // tokens of the chain
  double holds = 1;             // probability that what comes goes on from here, with none at hand
  std::uint32_t n_in_all = 0;   // with those that come
  double at_hand = 0;           // expected tokens of the best path now, of any source
  double value = 1;             // of a token of the sequence
  double odds = 1;              // SequenceOdds::factor() of it
};

struct WaitTerms {
  std::uint32_t n_running = 1;   // sequences of the step
  double tokens_per_second = 0;  // of all of them, as of late; 0: not known
  Duration limit{};              // the longest wait
};

struct WaitFor {
  Duration wait{};                      // 0: none pays
  std::vector<std::uint32_t> n_tokens;  // at hand then, of each that is expected
};

WaitFor best_wait(std::span<const Expected> expected,
                  const WaitTerms& terms,
                  const DepthOutcomes& outcomes,
                  const StepCost& cost);

}  // namespace foretoken
