// Final answers that a client's connection did not take: they are tried again for half a minute,
// and a connection that gives the same answer back again and again has no more time than one that
// never took it. Not at once again: a connection that was full a moment ago is full still. Bounded.
// One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>

#include "common/base/clock.h"
#include "common/messages/client.h"
#include "common/runtime/service.h"

namespace foretoken {

class UnsentAnswers {
 public:
  // False: there is no room, or its time is over; it is lost.
  [[nodiscard]] bool keep(const Peer& peer, wire::ClientAnswer answer, TimePoint now);
  // A piece of this answer was lost after its last message had been handed over: should that one
  // come back, this error goes out in its place. A stream with a hole is worse than none.
  void spoil(const Peer& peer, const std::string& id, wire::ClientError instead, TimePoint now);
  void client_gone(const Peer& peer);
  // Tries each once, if due. Returns how many were given up.
  std::uint64_t send_again(Bus& bus, TimePoint now);
  bool empty() const { return unsent_.empty(); }
  TimePoint due() const { return empty() ? TimePoint::max() : due_; }

 private:
  struct Unsent {
    Peer peer;
    wire::ClientAnswer answer;
    std::string id;
    TimePoint until{};
  };
  struct Patience {
    TimePoint until{};
    TimePoint seen{};  // when it last came back or did not leave
  };
  struct Spoiled {
    wire::ClientError instead;
    TimePoint at{};
  };
  void forget_old(TimePoint now);

  std::deque<Unsent> unsent_;
  TimePoint due_{};
  std::map<std::pair<Peer, std::string>, Spoiled> spoiled_;    // likewise
  std::map<std::pair<Peer, std::string>, Patience> patience_;  // by client and the answer's id
};

}  // namespace foretoken
