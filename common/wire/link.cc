#include "common/wire/link.h"

#include <algorithm>

#include "common/base/check.h"

namespace foretoken::wire {
namespace {

using S = LinkState;
using E = LinkEvent;
using A = LinkAction;

constexpr std::size_t kRememberedLives = 8;

}  // namespace

const std::vector<LinkRow>& link_table() {
  // kTick stands for "the timer of this state has run out"; kSilent for four heartbeats without a
  // frame.
  static const std::vector<LinkRow> table{
      {S::kGreeting, E::kTick, S::kGreeting, {A::kSendHello}},
      {S::kGreeting, E::kAccepted, S::kUp, {A::kReportUp}},
      {S::kGreeting, E::kRefusal, S::kRefused, {A::kReportRefused}},
      {S::kGreeting, E::kHeard, S::kGreeting, {}},    // not ours to use before it has accepted us
      {S::kGreeting, E::kUnknown, S::kGreeting, {}},  // hello is on its way already
      {S::kGreeting, E::kLost, S::kGreeting, {}},     // the timer repeats it
      {S::kGreeting, E::kSilent, S::kGreeting, {}},

      {S::kUp, E::kTick, S::kUp, {A::kSendHeartbeat}},
      {S::kUp, E::kAccepted, S::kUp, {}},  // a second answer to a repeated hello
      {S::kUp, E::kRefusal, S::kRefused, {A::kReportGone, A::kReportRefused}},
      {S::kUp, E::kHeard, S::kUp, {}},
      {S::kUp, E::kUnknown, S::kGreeting, {A::kReportGone, A::kSendHello}},
      {S::kUp, E::kLost, S::kGreeting, {A::kReportGone}},
      {S::kUp, E::kSilent, S::kGreeting, {A::kReportGone, A::kSendHello}},

      {S::kRefused, E::kTick, S::kGreeting, {A::kSendHello}},
      {S::kRefused, E::kAccepted, S::kUp, {A::kReportUp}},
      {S::kRefused, E::kRefusal, S::kRefused, {}},
      {S::kRefused, E::kHeard, S::kRefused, {}},
      {S::kRefused, E::kUnknown, S::kGreeting, {A::kSendHello}},
      {S::kRefused, E::kLost, S::kGreeting, {}},  // perhaps another takes its place
      {S::kRefused, E::kSilent, S::kRefused, {}},
  };
  return table;
}

LinkActions Link::apply(LinkEvent event, TimePoint now) {
  const auto row = std::find_if(link_table().begin(), link_table().end(), [&](const LinkRow& r) {
    return r.from == state_ && r.on == event;
  });
  FORETOKEN_CHECK(row != link_table().end(), "every state answers every event");
  const bool moved = row->to != state_;
  state_ = row->to;
  const bool sent = std::any_of(row->actions.begin(), row->actions.end(), [](LinkAction a) {
    return a == A::kSendHello || a == A::kSendHeartbeat;
  });
  if (moved || sent) {
    const Duration wait = state_ == S::kUp         ? times_.heartbeat
                          : state_ == S::kGreeting ? times_.hello_retry
                                                   : times_.refused_retry;
    next_send_ = now + wait;
  }
  return row->actions;
}

LinkActions Link::on(LinkEvent event, TimePoint now) {
  if (event != E::kTick) {
    last_heard_ = now;
    return apply(event, now);
  }
  if (state_ == S::kUp && now - last_heard_ >= kMissedHeartbeats * times_.heartbeat)
    return apply(E::kSilent, now);
  return now >= next_send_ ? apply(E::kTick, now) : LinkActions{};
}

TimePoint Link::next_tick() const {
  return state_ == S::kUp ? std::min(next_send_, last_heard_ + kMissedHeartbeats * times_.heartbeat)
                          : next_send_;
}

Guest::Verdict Guest::on_hello(Incarnation incarnation, TimePoint now) {
  if (std::find(dead_.begin(), dead_.end(), incarnation) != dead_.end()) return Verdict::kStale;
  last_heard_ = now;
  if (present_ && incarnation == incarnation_) return Verdict::kCurrent;
  if (incarnation != incarnation_ && incarnation_ != Incarnation{}) {
    dead_.push_back(incarnation_);
    if (dead_.size() > kRememberedLives) dead_.erase(dead_.begin());
  }
  present_ = true;
  incarnation_ = incarnation;
  return Verdict::kNew;
}

Guest::Verdict Guest::on_frame(Incarnation incarnation, TimePoint now) {
  if (!present_) return Verdict::kStranger;
  if (incarnation != incarnation_)
    return std::find(dead_.begin(), dead_.end(), incarnation) != dead_.end() ? Verdict::kStale
                                                                             : Verdict::kStranger;
  last_heard_ = now;
  return Verdict::kCurrent;
}

bool Guest::expired(TimePoint now, Duration heartbeat) {
  if (!present_ || now - last_heard_ < kMissedHeartbeats * heartbeat) return false;
  present_ = false;
  return true;
}

std::string_view name_of(LinkState state) {
  return state == S::kGreeting ? "greeting" : state == S::kUp ? "up" : "refused";
}

std::string_view name_of(LinkEvent event) {
  static constexpr std::string_view kNames[] = {"tick",    "accepted", "refusal", "heard",
                                                "unknown", "lost",     "silent"};
  return kNames[static_cast<std::size_t>(event)];
}

}  // namespace foretoken::wire
