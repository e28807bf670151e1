#include "common/spec/drafting_gate.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace foretoken {
namespace {

// The other way has to be better by this much.
const double kBetter = std::log(1.03);
// Standard errors by which silence has to be better before it is tried out of turn, and before it
// is kept.
constexpr double kSureErrors = 1.5;
constexpr double kNewestErrors = 3;  // likewise, by the newest passes alone
// Standard errors by which a trial has to be away from what would change anything, to end early.
constexpr double kDecidedErrors = 1;
// Standard errors by which silent passes have to bring less than other sources seem to bring beside
// drafts.
constexpr double kDependsErrors = 5;
constexpr std::size_t kWindow = 24;  // passes whose times are compared
constexpr std::uint32_t kLongestTrial = 48;
constexpr std::uint32_t kLeastPasses = 6;
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

double square(double x) { return x * x; }

}  // namespace

// Tokens that a sequence has of a pass. As if one more might have come in one more pass: of few
// passes without any nothing is certain.
DraftingGate::Tokens DraftingGate::tokens_of(const Passes& passes) {
  const auto n = static_cast<double>(passes.size());
  Tokens tokens;
  for (std::size_t i = 0; i < passes.size(); ++i) {
    const PassYield& pass = passes.newest(i);
    tokens.with += pass.n_committed / pass.n_decoding / n;
    tokens.without += pass.n_without / pass.n_decoding / n;
  }
  double of_with = 0, of_without = 0, of_both = 0;
  for (std::size_t i = 0; i < passes.size(); ++i) {
    const PassYield& pass = passes.newest(i);
    const double with = pass.n_committed / pass.n_decoding / tokens.with - 1;
    const double without = pass.n_without / pass.n_decoding / tokens.without - 1;
    of_with += square(with);
    of_without += square(without);
    of_both += square(with - without);
  }
  const double one_more = square(1.0 / passes.newest(0).n_decoding);
  tokens.error_of_with = std::sqrt(of_with + one_more) / n;
  tokens.error_of_without = std::sqrt(of_without + one_more) / n;
  tokens.error_of_both = std::sqrt(of_both + one_more) / n;
  return tokens;
}

// Of a pass, in times of what `cost` gives for a plain one.
DraftingGate::Estimate DraftingGate::time_of(const Passes& passes, const StepCost& cost) {
  std::vector<double> took(std::min(passes.size(), kWindow));
  for (std::size_t i = 0; i < took.size(); ++i)
    took[i] = in_seconds(passes.newest(i).interval) / cost.seconds(passes.newest(i).n_decoding);
  const auto middle = took.begin() + static_cast<std::ptrdiff_t>(took.size() / 2);
  std::nth_element(took.begin(), middle, took.end());
  const double most = kMostOfMedian * *middle;
  double sum = 0, squares = 0;
  for (double& each : took) sum += each = std::min(each, most);
  const auto n = static_cast<double>(took.size());
  for (const double each : took) squares += square(each * n / sum - 1);
  return {sum / n, std::sqrt(squares) / n};
}

DraftingGate::Estimate DraftingGate::log_gain(const Passes& asks, const StepCost& cost) const {
  const Tokens asked = tokens_of(asks);
  const Tokens silent = tokens_of(silent_);
  const Estimate asked_time = time_of(asks, cost);
  const Estimate silent_time = time_of(silent_, cost);
  // Other sources may depend on what drafts bring: then silent passes have clearly less than what
  // these seem to bring without them.
  const double missing = std::log(asked.without / silent.with);
  const bool depends =
      missing > kDependsErrors * std::hypot(asked.error_of_without, silent.error_of_with);
  const Estimate tokens = depends ? Estimate{asked.with / silent.with,
                                             std::hypot(asked.error_of_with, silent.error_of_with)}
                                  : Estimate{asked.with / asked.without, asked.error_of_both};
  return {std::log(tokens.value * silent_time.value / asked_time.value),
          std::hypot(tokens.error, asked_time.error, silent_time.error)};
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
  // Of these nothing follows.
  if (pass.n_decoding == 0 || pass.n_committed <= 0 || pass.n_without <= 0 ||
      pass.interval <= Duration::zero() || cost.seconds(1) <= 0)
    return;
  in_phase_ += pass.interval;
  if (pass.is_opening) return;
  ++n_passes_;
  switch (phase_) {
    case Phase::kSteady:
      steady().add(pass);
      if (n_passes_ < (gain_ == 0 ? kWindow / 2 : kWindow)) return;  // soon for the first time
      if (is_pause_over() || begins_to_doubt(cost)) begin_trial();
      return;
    case Phase::kSettling:
      tried().add(pass);
      if (steady_asks_ ? pass.is_owed && n_passes_ < kMostSettling : !is_probe_over(pass)) return;
      if (steady_asks_ || pass.n_committed > pass.n_without) return begin_trying();
      return end_probe(cost);
    case Phase::kTrying:
      if (n_to_fill_ > 0) {
        --n_to_fill_;
        --n_passes_;
        return;
      }
      tried().add(pass);
      if (n_passes_ >= kLongestTrial || is_decided(cost)) end_trial(cost);
      return;
  }
}

bool DraftingGate::is_pause_over() const {
  return in_phase_ >= least_pause_ && (in_phase_ >= pause_ || n_passes_ >= kLongestPause);
}

// By the times of the last trial. Where the newest passes alone say so the text has turned, and
// what came before is forgotten.
bool DraftingGate::begins_to_doubt(const StepCost& cost) {
  if (!steady_asks_ || gain_ == 0 || n_passes_ % kLeastPasses != 0) return false;
  const auto loses = [&](const Passes& asks, double errors) {
    const Estimate gain = log_gain(asks, cost);
    return gain.value + errors * gain.error < 0;
  };
  if (loses(asked_, kSureErrors)) return true;
  Passes newest = asked_;
  newest.keep_newest(kWindow);
  if (!loses(newest, kNewestErrors)) return false;
  asked_ = newest;
  return true;
}

bool DraftingGate::is_decided(const StepCost& cost) const {
  if (n_passes_ < kLeastPasses) return false;
  const Estimate gain = log_gain(asked_, cost);
  // A trial may end where nothing speaks for the other way, too.
  const double better = steady_asks_ ? -gain.value : gain.value;
  const double by = better - kBetter;
  return by < -kDecidedErrors * gain.error ||
         (n_passes_ >= kWindow && by > kDecidedErrors * gain.error);
}

// Without proposals each pass commits a token: once there are as many as the longest chain has, no
// answer is of use. One that came while a pass ran is verified by the next.
bool DraftingGate::is_probe_over(const PassYield& pass) {
  if (pass.n_committed > pass.n_without) return true;
  if (pass.is_owed) return n_passes_ >= std::max(kLeastPatience, pass.most_proposals);
  return std::exchange(is_answered_, true);
}

void DraftingGate::begin_trial() {
  is_answered_ = false;
  phase_ = Phase::kSettling;
  tried().clear();
  n_passes_ = 0;
  in_phase_ = {};
}

void DraftingGate::begin_trying() {
  phase_ = Phase::kTrying;
  tried().clear();
  n_to_fill_ = steady_asks_ ? 0 : n_passes_ - 1;
  n_passes_ = 0;
}

// The single question brought no token. What it cost is little, so the next comes soon.
void DraftingGate::end_probe(const StepCost& cost) {
  const double asked = time_of(asked_, cost).value;
  const double silent = time_of(silent_, cost).value;
  begin_pause({}, 1 - silent / asked, cost);
}

void DraftingGate::end_trial(const StepCost& cost) {
  const Estimate gain = log_gain(asked_, cost);
  const double better = steady_asks_ ? -gain.value : gain.value;
  gain_ = std::exp(gain.value);
  if (better > std::max(kBetter, (steady_asks_ ? kSureErrors : 0) * gain.error)) {
    steady_asks_ = !steady_asks_;
    n_kept_ = 0;
    return begin_pause({}, 0, cost);  // the way back is tried soon: one comparison may err
  }
  const Duration pause = in_phase_ * (1u << std::min(n_kept_, kMostDoublings));
  ++n_kept_;
  begin_pause(pause, 1 - std::exp(better), cost);
}

// `lost_share` of the trial's time was lost. A process that was stopped within the trial, or a
// prompt that a draft read for long elsewhere, looks like a loss of all that time: it must not
// silence drafts for long.
void DraftingGate::begin_pause(Duration pause, double lost_share, const StepCost& cost) {
  const double lost = std::max(0.0, lost_share) * in_seconds(in_phase_);
  const double longest = std::max(kLongestLossPause, kLongestPause * cost.seconds(1));
  const std::chrono::duration<double> least(std::min(lost / kTrialShare, longest));
  least_pause_ = std::chrono::duration_cast<Duration>(least);
  pause_ = pause;
  phase_ = Phase::kSteady;
  n_passes_ = 0;
  in_phase_ = {};
}

}  // namespace foretoken
