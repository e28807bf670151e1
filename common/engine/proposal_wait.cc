#include "common/engine/proposal_wait.h"

#include <algorithm>

namespace foretoken {
namespace {

constexpr Duration kArrivalJitter = std::chrono::microseconds(100);
constexpr Duration kShortestTrial = std::chrono::milliseconds(1);
constexpr std::uint32_t kStepsBetweenTrials = 32;

bool is_whole(const Expected& expected) { return expected.per_token == Duration::zero(); }

}  // namespace

WaitFor ProposalWait::begin(std::vector<Expected> owed, std::uint32_t n_running, TimePoint now) {
  if (owed.empty()) return {};
  is_judged_ = std::any_of(owed.begin(), owed.end(), is_whole);
  for (Expected& each : owed)
    if (is_whole(each)) each.arrives_in = expected_arrival(each.arrives_in);
  const Duration one_step = step(n_running);
  const Duration most = limit(n_running);
  // Where draft and target share their cores a step and a half may pay; beyond that a draft as slow
  // as its target would cost more than it brings.
  const Duration longest =
      one_step > Duration::zero() ? std::min(most, 3 * one_step / 2) : Duration::zero();
  WaitFor best = best_wait(
      owed,
      {.n_running = n_running, .tokens_per_second = length_.tokens_per_second(), .limit = longest},
      outcomes_, length_.step_cost());
  // A chain that goes on is there at once, one that begins anew takes a while: an answer that is
  // worth its usual time is given twice that, and a step at least. It ends the wait by itself.
  const Duration patience = std::min(most, std::max(one_step, kShortestTrial));
  if (best.wait == Duration::zero()) return is_judged_ ? try_or_not(owed, patience, now) : best;
  const Duration least = is_judged_ ? patience : std::min(best.wait, most);
  best.wait = begin_at_most(std::clamp(2 * best.wait, least, most), now);
  return best;
}

// Nothing seems worth a wait: now and then one shows whether that is so.
WaitFor ProposalWait::try_or_not(std::span<const Expected> owed, Duration patience, TimePoint now) {
  WaitFor trial;
  if (trials_left_ == 0 || length_.is_off()) return trial;
  --trials_left_;
  is_trial_ = true;
  trial.wait = begin_at_most(patience, now);
  for (const Expected& each : owed)
    trial.n_tokens.push_back(is_whole(each) ? each.n_in_all : each.n_at_hand);
  return trial;
}

Duration ProposalWait::begin_longest(std::uint32_t n_running, TimePoint now) {
  is_judged_ = false;
  return begin_at_most(limit(n_running), now);
}

Duration ProposalWait::step(std::uint32_t n_running) const {
  const std::chrono::duration<double> seconds(length_.step_cost().seconds(n_running));
  return std::chrono::duration_cast<Duration>(seconds);
}

// What holds up a target of short steps is nothing to one whose steps take seconds.
Duration ProposalWait::limit(std::uint32_t n_running) const {
  return std::max(limit_, 3 * step(n_running) / 2);
}

Duration ProposalWait::begin_at_most(Duration at_most, TimePoint now) {
  began_ = now;
  return at_most;
}

// What the link says was measured with and without waiting; a draft that shares cores with the
// target is far quicker while that waits. So what waiting itself has shown comes first.
Duration ProposalWait::expected_arrival(Duration by_link) const {
  return usual_ > Duration::zero() ? usual_ : std::max(by_link, kArrivalJitter);
}

void ProposalWait::learn(bool is_owed, Duration waited) {
  if (!is_owed) {
    usual_ += usual_ == Duration::zero() ? waited : (waited - usual_) / 4;
  } else if (is_trial_) {
    usual_ = {};
    trials_left_ = 0;
  } else {
    usual_ += usual_ / 4;
  }
}

Duration ProposalWait::end(bool is_owed, TimePoint now) {
  Duration waited{};
  if (began_) {
    waited = now - *began_;
    length_.observe_wait(waited);
    if (is_judged_) learn(is_owed, waited);
  }
  began_.reset();
  is_trial_ = false;
  if (is_owed && ++n_owed_steps_ >= kStepsBetweenTrials) {
    n_owed_steps_ = 0;
    trials_left_ = kTrialsInARow;
  }
  return waited;
}

}  // namespace foretoken
