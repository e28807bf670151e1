// A connection's life as a table: (state, event) -> (state, actions), plus two timers. Liveness and
// greeting are decided here and nowhere else. Pure: time comes as an argument, actions leave as
// values; whoever owns the socket carries them out.
//
// The dialling end (worker -> router, target -> draft) says hello until it is answered, then keeps
// the link alive with heartbeats. The listening end (Guest) knows a peer by its last hello. Four
// silent heartbeats are a dead peer for both.
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"

namespace foretoken::wire {

enum class LinkState : std::uint8_t { kGreeting, kUp, kRefused };

enum class LinkEvent : std::uint8_t {
  kTick,      // time passed: timers are looked at
  kAccepted,  // HelloReply, accepted
  kRefusal,   // HelloReply, refused
  kHeard,     // any other frame of the peer
  kUnknown,   // HeartbeatReply{known = false}: it has forgotten us, or is a new incarnation
  kLost,      // Goodbye, or a frame could not be delivered
  kSilent,    // four heartbeats without a frame; the link raises it itself
};

enum class LinkAction : std::uint8_t {
  kSendHello,
  kSendHeartbeat,
  kReportUp,    // the peer may be used
  kReportGone,  // the peer may not be used any more: forget what is under way there
  kReportRefused,
};

using LinkActions = std::vector<LinkAction>;

struct LinkTimes {
  Duration heartbeat = std::chrono::milliseconds(250);
  Duration hello_retry = std::chrono::milliseconds(100);
  Duration refused_retry =
      std::chrono::seconds(1);  // what was refused may be replaced by something that fits
};

inline constexpr int kMissedHeartbeats = 4;

class Link {
 public:
  explicit Link(const LinkTimes& times) : times_(times) {}
  LinkState state() const { return state_; }
  bool up() const { return state_ == LinkState::kUp; }
  // The first call says hello. Call with kTick at least when next_tick() says.
  LinkActions on(LinkEvent event, TimePoint now);
  TimePoint next_tick() const;
  void set_heartbeat(Duration heartbeat) { times_.heartbeat = heartbeat; }  // as HelloReply says

 private:
  LinkActions apply(LinkEvent event, TimePoint now);

  LinkTimes times_;
  LinkState state_ = LinkState::kGreeting;
  TimePoint next_send_{};  // of the next hello or heartbeat
  TimePoint last_heard_{};
};

// The listening end's view of one worker.
class Guest {
 public:
  enum class Verdict : std::uint8_t {
    kCurrent,   // go on
    kNew,       // first hello, or of a new life: everything of an older one is dead
    kStale,     // of an older life: drop and count
    kStranger,  // never said hello, or was given up: answer with known = false
  };

  Verdict on_hello(Incarnation incarnation, TimePoint now);
  Verdict on_frame(Incarnation incarnation, TimePoint now);
  // True once when it has been silent for too long; it is a stranger then.
  bool expired(TimePoint now, Duration heartbeat);
  void gone() { present_ = false; }
  bool present() const { return present_; }
  Incarnation incarnation() const { return incarnation_; }

 private:
  bool present_ = false;
  Incarnation incarnation_;
  std::vector<Incarnation> dead_;  // the last few lives: a late frame of one is stale, not new
  TimePoint last_heard_{};
};

// One row of the table, for its test and for people.
struct LinkRow {
  LinkState from;
  LinkEvent on;
  LinkState to;
  std::vector<LinkAction> actions;
};
const std::vector<LinkRow>& link_table();

std::string_view name_of(LinkState state);
std::string_view name_of(LinkEvent event);

}  // namespace foretoken::wire
