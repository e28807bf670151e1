#include "common/spec/drafting_gate.h"

#include <algorithm>
#include <vector>

namespace foretoken {
namespace {

// The other way has to be better by this much: windows scatter.
constexpr double kBetter = 1.03;
// The mean of a window scatters by about this much.
constexpr double kScatter = 1.01;
// A trial ends early when it yields less than this part of the steady way; from twice
// so many passes on, less than the second.
constexpr double kLost = 0.7;
constexpr double kLostLater = 0.85;
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
// Of the passes in which drafts read, so many count as time of the trial: a question that is
// answered too late costs what its draft computes on cores that both may share.
constexpr std::uint32_t kMostOpening = 64;
// A pass counts with at most so many times the median of a window.
constexpr double kMostOfMedian = 3;

std::uint32_t most_settling(bool tries_silence, std::uint32_t most_proposals) {
  return tries_silence ? kMostSettling : std::max(kLeastPatience, most_proposals);
}

Duration in_duration(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

DraftingGate::Rate DraftingGate::Window::rate(const StepCost& cost) const {
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
  const double longest = kMostOfMedian * *middle;
  double time = 0;
  for (const double each : took) time += std::min(each, longest);
  return {.yield = n_tokens / time, .longest = longest};
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
  if (phase_ == Phase::kSteady)
    in_phase_ += pass.interval;
  else
    note_trial(pass, cost);
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

void DraftingGate::note_trial(const PassYield& pass, const StepCost& cost) {
  const Rate steady = steady_.rate(cost);
  const double plain = cost.seconds(pass.n_decoding);
  const double took = in_seconds(pass.interval) / plain;
  // Other processes may cause a single long pass. Drafts that slow the target down do so in several
  // passes in a row.
  const double counted = std::min(took, std::max(steady.longest, took_before_));
  took_before_ = took;
  // Within what windows scatter by there is no loss; over the very many passes that drafts may read
  // for, scatter would become one.
  const double margin = pass.is_opening ? kBetter : kScatter;
  const double worth = margin * pass.n_committed / pass.n_decoding / steady.yield;
  lost_ += (counted - worth) * plain;
  if (!pass.is_opening || n_opening_++ < kMostOpening) in_phase_ += in_duration(counted * plain);
}

bool DraftingGate::is_pause_over() const {
  return in_phase_ >= least_pause_ && (in_phase_ >= pause_ || n_passes_ >= kLongestPause);
}

bool DraftingGate::has_fallen(const StepCost& cost) const {
  return steady_asks_ && n_passes_ >= 2 * kWindow && n_passes_ % kLeastPasses == 0 &&
         steady_.yield(cost) < kFallen * kept_yield_;
}

bool DraftingGate::is_lost(const StepCost& cost) const {
  if (n_passes_ < kLeastPasses) return false;
  const double least = n_passes_ < 2 * kLeastPasses ? kLost : kLostLater;
  return trial_.yield(cost) < least * steady_.yield(cost);
}

void DraftingGate::begin_trial() {
  phase_ = Phase::kSettling;
  trial_.clear();
  n_passes_ = 0;
  in_phase_ = {};
  took_before_ = lost_ = 0;
  n_opening_ = 0;
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
    least_pause_ = in_duration(std::max(0.0, lost_) / kTrialShare);
    pause_ = trial_took * (1u << std::min(n_kept_, kMostDoublings));
    ++n_kept_;
  }
  phase_ = Phase::kSteady;
  n_passes_ = 0;
  in_phase_ = {};
}

}  // namespace foretoken
