#include "common/spec/drafting_gate.h"

#include <algorithm>
#include <vector>

namespace foretoken {
namespace {

// The other way has to be better by this much: windows scatter.
constexpr double kBetter = 1.03;
// A trial ends early when it yields less than this part of the steady way; from twice
// so many passes on, less than the second.
constexpr double kLost = 0.7;
constexpr double kLostLater = 0.85;
// A trial of asks ends sooner: it costs what asking costs where it does not pay, and what it may
// find soon comes again.
constexpr double kAskingLost = 0.85;
constexpr double kAskingLostLater = 0.95;
constexpr std::uint32_t kLeastPasses = 6;
// A steady way that yields less than this part of what it did calls for a trial.
constexpr double kFallen = 0.8;
// Passes for which answers to what was asked before are waited for before silence is tried.
constexpr std::uint32_t kMostSettling = 32;
// An answer may take so many passes even where chains are shorter: no pass waits for it.
constexpr std::uint32_t kLeastPatience = 8;
// Of all time, that trials may cost.
constexpr double kTrialShare = 0.01;
constexpr std::uint32_t kMostDoublings = 7;
constexpr std::uint32_t kLongestPause = 4096;  // passes
constexpr double kLongestLossPause = 60;       // seconds, or as many passes as the longest pause
// A pass counts with at most so many times the median of its window.
constexpr double kMostOfMedian = 3;

std::uint32_t most_settling(bool tries_silence, std::uint32_t most_proposals) {
  return tries_silence ? kMostSettling : std::max(kLeastPatience, most_proposals);
}

}  // namespace

double DraftingGate::Window::yield(const StepCost& cost) const {
  std::vector<double> took;
  took.reserve(size());
  double n_tokens = 0;
  for (std::size_t i = 0; i < size(); ++i) {
    const PassYield& pass = passes_[i];
    n_tokens += pass.n_committed / pass.n_decoding;
    took.push_back(in_seconds(pass.interval) / cost.seconds(pass.n_decoding));
  }
  const auto middle = took.begin() + static_cast<std::ptrdiff_t>(took.size() / 2);
  std::nth_element(took.begin(), middle, took.end());
  const double most = kMostOfMedian * *middle;
  double time = 0;
  for (const double each : took) time += std::min(each, most);
  return n_tokens / time;
}

DraftingGate::Asking DraftingGate::asking() const {
  switch (phase_) {
    case Phase::kSteady:
      return steady_asks_ ? Asking::kAll : Asking::kNone;
    case Phase::kSettling:
      return !steady_asks_ && n_passes_ == 0 ? Asking::kOne : Asking::kNone;
    case Phase::kTrying:
      return steady_asks_ ? Asking::kNone : Asking::kAll;
  }
  return Asking::kAll;
}

void DraftingGate::observe(const PassYield& pass, const StepCost& cost) {
  if (pass.n_decoding == 0 || pass.interval <= Duration::zero() || cost.seconds(1) <= 0) return;
  in_phase_ += pass.interval;
  if (pass.is_opening) return;
  ++n_passes_;
  switch (phase_) {
    case Phase::kSteady:
      steady_.add(pass);
      if (n_passes_ < (gain_ == 0 ? kWindow / 2 : kWindow)) return;  // soon for the first time
      if (is_pause_over() || has_fallen(cost)) begin_trial();
      return;
    case Phase::kSettling:
      trial_.add(pass);
      // Without proposals each pass commits a token: once there are as many as the longest chain
      // has, no answer is of use.
      if (pass.is_owed && n_passes_ < most_settling(steady_asks_, pass.most_proposals)) return;
      if (pass.is_owed && !steady_asks_) return end_trial(/*is_answered=*/false, cost);
      phase_ = Phase::kTrying;
      trial_.clear();
      n_to_fill_ = steady_asks_ ? 0 : n_passes_ - 1;
      n_passes_ = 0;
      return;
    case Phase::kTrying:
      if (n_to_fill_ > 0) {
        --n_to_fill_;
        --n_passes_;
        return;
      }
      trial_.add(pass);
      if (n_passes_ >= kWindow || is_lost(cost)) end_trial(/*is_answered=*/true, cost);
      return;
  }
}

bool DraftingGate::is_pause_over() const {
  return in_phase_ >= least_pause_ && (in_phase_ >= pause_ || n_passes_ >= kLongestPause);
}

bool DraftingGate::has_fallen(const StepCost& cost) const {
  return steady_asks_ && n_passes_ >= kWindow && n_passes_ % kLeastPasses == 0 &&
         steady_.yield(cost) < kFallen * kept_yield_;
}

bool DraftingGate::is_lost(const StepCost& cost) const {
  if (n_passes_ < kLeastPasses) return false;
  const bool is_later = n_passes_ >= 2 * kLeastPasses;
  const double least =
      steady_asks_ ? (is_later ? kLostLater : kLost) : (is_later ? kAskingLostLater : kAskingLost);
  return trial_.yield(cost) < least * steady_.yield(cost);
}

void DraftingGate::begin_trial() {
  phase_ = Phase::kSettling;
  trial_.clear();
  n_passes_ = 0;
  in_phase_ = {};
}

void DraftingGate::end_trial(bool is_answered, const StepCost& cost) {
  const double steady = steady_.yield(cost);
  const double tried = trial_.yield(cost);
  if (is_answered) gain_ = steady_asks_ ? steady / tried : tried / steady;
  const Duration trial_took = in_phase_;
  if (is_answered && tried > kBetter * steady) {
    // The way back is tried soon: one comparison may err.
    steady_asks_ = !steady_asks_;
    steady_ = trial_;
    kept_yield_ = tried;
    least_pause_ = pause_ = {};
    n_kept_ = 0;
  } else {
    kept_yield_ = steady;
    const double lost = std::max(0.0, 1 - tried / steady) * in_seconds(trial_took);
    // A process that was stopped within the trial, or a prompt that a draft read for long
    // elsewhere, looks like a loss of all that time: it must not silence drafts for long.
    const double longest = std::max(kLongestLossPause, kLongestPause * cost.seconds(1));
    const std::chrono::duration<double> least(std::min(lost / kTrialShare, longest));
    least_pause_ = std::chrono::duration_cast<Duration>(least);
    pause_ = trial_took * (1u << std::min(n_kept_, kMostDoublings));
    ++n_kept_;
  }
  phase_ = Phase::kSteady;
  n_passes_ = 0;
  in_phase_ = {};
}

}  // namespace foretoken
