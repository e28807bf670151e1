#include "services/target/draft_link.h"

#include <algorithm>
#include <utility>

namespace foretoken {

std::string_view name_of(LinkChoice choice) {
  switch (choice) {
    case LinkChoice::kAuto:
      return "auto";
    case LinkChoice::kSharedMemory:
      return "shared_memory";
    case LinkChoice::kZeroMq:
      return "zeromq";
  }
  return "";
}

DraftLink::Action DraftLink::tick(TimePoint now) {
  if (now < due()) return Action::kNone;
  switch (state_) {
    case State::kWaiting:
      return Action::kAsk;
    case State::kAsked:
      failed(now, "it does not answer LINK_ASK");
      return Action::kNone;
    case State::kOpening:
      failed(now, "it did not confirm the link");
      return Action::kGiveUp;
    case State::kOff:
    case State::kUp:
      return Action::kNone;
  }
  return Action::kNone;
}

void DraftLink::asked(TimePoint now) {
  if (state_ != State::kWaiting) return;
  state_ = State::kAsked;
  due_ = now + kPatience;
}

void DraftLink::not_asked(TimePoint now) {
  if (state_ != State::kWaiting && state_ != State::kAsked) return;
  state_ = State::kWaiting;
  due_ = now + kAskAgain;
}

bool DraftLink::offered(TimePoint now) {
  if (state_ != State::kAsked) return false;
  state_ = State::kOpening;
  due_ = now + kPatience;
  return true;
}

void DraftLink::said(TimePoint now) {
  if (state_ == State::kOpening) due_ = now + kPatience;
}

bool DraftLink::confirmed(TimePoint now) {
  if (state_ != State::kOpening) return false;
  state_ = State::kUp;
  up_since_ = now;
  why_not_.clear();
  return true;
}

void DraftLink::failed(TimePoint now, std::string why) {
  if (state_ == State::kOff) return;
  if (is_up() && now - up_since_ >= kLongestPause) n_failures_ = 0;
  state_ = State::kWaiting;
  why_not_ = std::move(why);
  due_ = now + std::min<Duration>(kLongestPause, kFirstPause * (1 << std::min(n_failures_, 16u)));
  ++n_failures_;
}

}  // namespace foretoken
