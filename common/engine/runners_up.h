// The runners-up of a guess: what the row that made it would have chosen instead. They are in the
// order of the score by which a row chooses, its noise included, so that what comes where a guess
// is wrong is mostly the first. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/engine/guess.h"
#include "common/engine/step.h"
#include "common/engine/step_plan.h"

namespace foretoken {

// Of a row's likeliest ids so many are looked at: SliceRequest::n_top.
inline constexpr std::int32_t kRunnerUpPool = 8;

// Of a row of `plan` with this rule that chose `chosen`. `likeliest`: by log-probability before any
// rule. Repetition penalties are left out, so under these it may be another token that comes.
RunnersUp runners_up(std::span<const TopLogprob> likeliest,
                     TokenId chosen,
                     const RowRule& rule,
                     const StepPlan& plan);

// Of a choice of the slice's last row: without runners-up if none were asked for.
Guess guess_of(const Step& step, std::size_t slice, const Choice& choice);

}  // namespace foretoken
