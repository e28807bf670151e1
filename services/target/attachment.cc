#include "services/target/attachment.h"

#include <algorithm>

namespace foretoken {

bool Attachment::is_attached() const {
  return state_ == AttachmentState::kOpening || state_ == AttachmentState::kActive ||
         state_ == AttachmentState::kLagging;
}

Duration Attachment::patience() const {
  return std::clamp(std::max(4 * answer_ewma_, 2 * step_), rules_.miss_floor, rules_.miss_ceiling);
}

bool Attachment::may_wait(TimePoint now) const {
  if (state_ != AttachmentState::kActive || !may_ask(now)) return false;
  return !waiting_ || now - waiting_since_ <= patience();
}

AttachmentAction Attachment::open(TimePoint now, const AttachmentPace& pace) {
  step_ = pace.step;
  const std::int64_t doubled = std::int64_t{1} << std::min(n_unanswered_, 16u);
  const Duration grace = std::min(rules_.longest_grace, doubled * rules_.opening_grace);
  state_ = AttachmentState::kOpening;
  waiting_ = was_busy_ = false;
  last_answered_ = last_asked_;  // nothing asked before counts any more
  misses_ = 0;
  opening_until_ = now + pace.prefill + 2 * pace.step + grace;
  return AttachmentAction::kSendAttach;
}

AttachmentAction Attachment::assigned(TimePoint now, const AttachmentPace& pace) {
  if (state_ == AttachmentState::kClosed) return AttachmentAction::kNone;
  ++lease_.value;
  malformed_ = 0;
  needs_ = 0;
  resend_at_ = {};
  probing_ = false;
  busy_until_ = {};
  answer_ewma_ = Duration{0};
  stream_ = {};
  asks_ = {};
  return open(now, pace);
}

AttachmentAction Attachment::release(TimePoint now) {
  state_ = AttachmentState::kDetached;
  waiting_ = false;
  misses_ = 0;
  probing_ = true;
  probe_at_ = std::max(busy_until_, now + std::max(rules_.probe_after, 2 * step_));
  return was_busy_ ? AttachmentAction::kReleaseBusy : AttachmentAction::kRelease;
}

AttachmentAction Attachment::lost(TimePoint now) {
  if (state_ == AttachmentState::kClosed) return AttachmentAction::kNone;
  const bool was_attached = is_attached();
  release(now);
  probing_ = false;  // no draft to probe: wait for an assignment
  return was_attached ? AttachmentAction::kRelease : AttachmentAction::kNone;
}

void Attachment::asked(Epoch epoch, std::uint32_t budget, TimePoint now) {
  if (!is_attached() || budget == 0) return;
  asks_[epoch.value % kRememberedAsks] = {epoch, now};
  last_asked_ = epoch;
  last_asked_at_ = now;
  if (waiting_) return;
  waiting_ = true;
  waiting_since_ = now;
}

std::optional<TimePoint> Attachment::asked_at(Epoch epoch) const {
  const AskedAt& ask = asks_[epoch.value % kRememberedAsks];
  if (ask.epoch != epoch || ask.at == TimePoint{}) return std::nullopt;
  return ask.at;
}

AttachmentAction Attachment::answered(Epoch epoch, TimePoint now) {
  const bool is_back = state_ == AttachmentState::kDetached && probing_;
  if (!is_attached() && !is_back) return AttachmentAction::kNone;
  if (const auto asked = asked_at(epoch); asked && now >= *asked) {
    const Duration took = now - *asked;
    answer_ewma_ = answer_ewma_ == Duration{0} ? took : (answer_ewma_ * 7 + took) / 8;
    asks_[epoch.value % kRememberedAsks] =
        {};  // what a draft adds without a question is not its pace
  }
  last_answered_ = std::max(last_answered_, std::min(epoch, last_asked_));
  waiting_ = last_answered_ < last_asked_;
  is_alive(now);
  return AttachmentAction::kNone;
}

// A draft that works on is not overdue, however long its answer takes.
AttachmentAction Attachment::progressed(Epoch epoch, std::uint32_t n_tokens, TimePoint now) {
  const bool is_back = state_ == AttachmentState::kDetached && probing_;
  if (!is_attached() && !is_back) return AttachmentAction::kNone;
  if (const auto asked = asked_at(epoch); asked && now >= *asked)
    stream_.observe(epoch, *asked, n_tokens, now);
  is_alive(now);
  return AttachmentAction::kNone;
}

void Attachment::is_alive(TimePoint now) {
  state_ = AttachmentState::kActive;
  waiting_since_ = now;  // for a later ask, the clock begins with this sign of life
  misses_ = 0;
  needs_ = 0;
  was_busy_ = false;
  n_unanswered_ = 0;
  probing_ = false;
}

// A prompt is long and a NEED is short: one may not cost the other each step.
AttachmentAction Attachment::resend(TimePoint now, AttachmentAction what) {
  if (!is_attached() || now < resend_at_) return AttachmentAction::kNone;
  if (++needs_ > rules_.max_needs) return release(now);
  const auto doublings = std::min<std::uint32_t>(needs_ - 1, 16);
  resend_at_ = now + std::min(rules_.resend_ceiling, rules_.resend_floor * (1 << doublings));
  return what;
}

AttachmentAction Attachment::needs_everything(TimePoint now, const AttachmentPace& pace) {
  if (is_attached() && was_busy_) return release(now);
  const AttachmentAction action = resend(now, AttachmentAction::kSendAttach);
  return action == AttachmentAction::kSendAttach ? open(now, pace) : action;
}

AttachmentAction Attachment::needs_tail(TimePoint now) {
  return resend(now, AttachmentAction::kSendPropose);
}

AttachmentAction Attachment::refused(TimePoint now) {
  if (!is_attached()) return AttachmentAction::kNone;
  release(now);
  probing_ = false;
  return AttachmentAction::kLeave;
}

AttachmentAction Attachment::busy(TimePoint now, Duration retry_after) {
  if (!is_attached()) return AttachmentAction::kNone;
  busy_until_ = std::max(busy_until_, now + retry_after);
  was_busy_ = true;
  waiting_ = false;  // it did answer: a refusal is no miss
  last_answered_ = last_asked_;
  misses_ = 0;
  if (state_ == AttachmentState::kOpening)
    opening_until_ = std::max(opening_until_, busy_until_ + rules_.opening_grace);
  return AttachmentAction::kNone;
}

AttachmentAction Attachment::malformed(TimePoint now) {
  if (!is_attached() || ++malformed_ < rules_.max_malformed) return AttachmentAction::kNone;
  const AttachmentAction action = release(now);
  probing_ = false;  // it is not late, it is wrong
  return action;
}

AttachmentAction Attachment::tick(TimePoint now, const AttachmentPace& pace) {
  step_ = pace.step;
  switch (state_) {
    case AttachmentState::kDetached:
      return probing_ && now >= probe_at_ ? open(now, pace) : AttachmentAction::kNone;
    case AttachmentState::kOpening:
      if (now < opening_until_) return AttachmentAction::kNone;
      if (!was_busy_) ++n_unanswered_;
      return release(now);
    case AttachmentState::kActive:
    case AttachmentState::kLagging:
      if (!waiting_ || now - waiting_since_ <= patience()) return AttachmentAction::kNone;
      waiting_since_ = now;  // misses are counted one after another
      state_ = AttachmentState::kLagging;
      if (++misses_ < rules_.max_misses) return AttachmentAction::kNone;
      was_busy_ = false;  // it was asked again behind its pause
      return release(now);
    case AttachmentState::kClosed:
      return AttachmentAction::kNone;
  }
  return AttachmentAction::kNone;
}

AttachmentAction Attachment::closed() {
  const bool was_attached = is_attached();
  const bool was_probing = state_ == AttachmentState::kDetached && probing_;
  state_ = AttachmentState::kClosed;
  waiting_ = false;
  // A draft we gave up on may hold the sequence still: a CLOSE spares it the lease's patience.
  return was_attached || was_probing ? AttachmentAction::kSendClose : AttachmentAction::kNone;
}

}  // namespace foretoken
