// Whether one draft reads this target's board of verdicts, as its target sees it: a state machine
// without clock, socket or log, beside DraftLink, without which no board is offered. Events come in
// with the time; what is due goes out as an answer of tick(). While nobody reads it rounds go as if
// there were no board.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/clock.h"

namespace foretoken {

class DraftBoard {
 public:
  // kOff: this target has no board. kDown: no link. kDue: an offer must be sent.
  enum class State : std::uint8_t { kOff, kDown, kDue, kOffered, kRead, kRefused };
  enum class Presence : bool { kNone, kThere };

  explicit DraftBoard(Presence board)
      : state_(board == Presence::kThere ? State::kDown : State::kOff) {}

  State state() const { return state_; }
  bool is_read() const { return state_ == State::kRead; }
  // It is being offered: what is said of the tier now would not hold for long.
  bool is_pending() const { return state_ == State::kDue || state_ == State::kOffered; }
  // Why it is not read, if it was offered in vain.
  const std::string& why_not() const { return why_not_; }
  // When to call tick() again.
  TimePoint due() const;

  void link_up(TimePoint now);
  void link_down();
  // True: send an offer now, and say so with offered() or not_offered().
  bool tick(TimePoint now);
  // Tokens are not used twice in a life of the target.
  void offered(TimePoint now, std::uint64_t token);
  // The offer did not leave: the connection has no room.
  void not_offered(TimePoint now);
  // The same, found out later.
  void offer_dropped(TimePoint now, std::uint64_t token);
  // False: an answer to an offer that counts no more. One that comes after our patience counts.
  bool opened(std::uint64_t token);
  bool refused(TimePoint now, std::uint64_t token, std::string why);

  static constexpr Duration kOfferAgain = std::chrono::milliseconds(20);
  // A draft may be in the middle of a long step, and opening is slow on some devices.
  static constexpr Duration kPatience = std::chrono::seconds(5);
  static constexpr Duration kFirstPause = std::chrono::seconds(1);
  static constexpr Duration kLongestPause = std::chrono::seconds(60);

 private:
  bool counts(std::uint64_t token) const;
  void rest(TimePoint now, std::string why);

  State state_;
  TimePoint due_{};
  std::uint64_t token_ = 0;       // of the last offer
  std::uint32_t n_failures_ = 0;  // in a row, over links
  std::string why_not_;
};

}  // namespace foretoken
