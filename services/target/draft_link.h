// The link to one draft, as its target sees it: a state machine without clock, socket or
// log. Events come in with the time, what is to be done goes out as an action; the draft proposer
// owns one per draft and does it. While it is not up everything travels as if it did not exist.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/clock.h"

namespace foretoken {

// target.draft_link. A draft that cannot be reached by a pinned tier is not used.
enum class LinkChoice : std::uint8_t { kAuto, kSharedMemory, kZeroMq };
std::string_view name_of(LinkChoice choice);  // as the configuration spells it

class DraftLink {
 public:
  enum class State : std::uint8_t { kOff, kWaiting, kAsked, kOpening, kUp };
  enum class Action : std::uint8_t { kNone, kAsk, kGiveUp };

  explicit DraftLink(LinkChoice choice)
      : state_(choice == LinkChoice::kZeroMq ? State::kOff : State::kWaiting),
        why_not_(choice == LinkChoice::kZeroMq ? "target.draft_link says so" : "") {}

  State state() const { return state_; }
  bool is_up() const { return state_ == State::kUp; }
  // Why it is not up, as far as that is known; empty before the first try has ended.
  const std::string& why_not() const { return why_not_; }
  // When to call tick() again.
  TimePoint due() const { return state_ == State::kOff || is_up() ? TimePoint::max() : due_; }

  // kAsk: send the question, and say so with asked(). kGiveUp: the link was not
  // confirmed in time; close it, if there is one. It has failed already.
  Action tick(TimePoint now);
  void asked(TimePoint now);
  // The question did not leave: the connection is not there yet.
  void not_asked(TimePoint now);
  // An offer came. False: there was no question.
  bool offered(TimePoint now);
  // Our first word has left: the draft's time to answer begins.
  void said(TimePoint now);
  // The first word came back. False: it is not waited for.
  bool confirmed(TimePoint now);
  // Denied, out of reach, or over. Tried again after a pause that grows.
  void failed(TimePoint now, std::string why);

  static constexpr Duration kAskAgain = std::chrono::milliseconds(20);
  static constexpr Duration kPatience = std::chrono::seconds(1);
  static constexpr Duration kFirstPause = std::chrono::milliseconds(250);
  static constexpr Duration kLongestPause = std::chrono::seconds(60);

 private:
  State state_;
  TimePoint due_{};
  TimePoint up_since_{};
  std::uint32_t n_failures_ = 0;  // in a row: a link that did not last counts as one
  std::string why_not_;
};

}  // namespace foretoken
