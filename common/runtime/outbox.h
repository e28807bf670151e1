// Frames for one peer that could not leave at once, bounded, in order: what the socket gave back
// goes before what came later, and not at once, for a connection that was full a moment ago is full
// still. Nothing says when it has room, so that is tried with one message, after a pause that
// doubles as long as it comes back; then with twice as many each time. Work thread only.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <utility>

#include "common/base/clock.h"
#include "common/runtime/service.h"

namespace foretoken {

class Outbox {
 public:
  static constexpr std::size_t kMaxFrames = 8192;
  static constexpr std::size_t kMaxBytes = std::size_t{32} << 20;
  static constexpr Duration kPause = std::chrono::milliseconds(2);  // after the socket refused
  static constexpr Duration kLongestPause = std::chrono::milliseconds(64);
  static constexpr std::size_t kMostAtOnce = 256;  // what a connection between services queues

  // Sends, or keeps for later. False: there is no room, the frames are lost.
  bool send(Bus& bus, const Peer& peer, Frames frames) {
    if (n_at_once_ == kMostAtOnce && flush(bus, peer)) {
      handed_over_ = true;
      const SendResult result = bus.send(peer, frames);
      if (result == SendResult::kSent) return true;
      if (result == SendResult::kUnknown) return false;
    }
    if (!keep(std::move(frames), frames_.size())) return false;
    flush(bus, peer);
    return true;
  }

  // The socket gave these back: they go first, in the order they come back in. False: no room.
  bool came_back(Frames frames, TimePoint now) {
    if (std::exchange(handed_over_, false)) {  // the first of those that were handed over last
      pause_ = n_at_once_ == 1 ? std::min(2 * pause_, kLongestPause) : kPause;
      n_at_once_ = 1;
    }
    not_before_ = now + pause_;
    if (!keep(std::move(frames), n_returned_)) return false;
    ++n_returned_;
    return true;
  }

  // True if nothing waits any more.
  bool flush(Bus& bus, const Peer& peer) {
    if (frames_.empty()) return true;
    const TimePoint now = bus.now();
    if (now < not_before_) return false;
    if (handed_over_) n_at_once_ = std::min(2 * n_at_once_, kMostAtOnce);  // none came back
    handed_over_ = true;
    n_returned_ = 0;  // what comes back from now on goes before those that stay
    if (n_at_once_ < kMostAtOnce) not_before_ = now + kPause;
    for (std::size_t n = n_at_once_; n > 0 && !frames_.empty(); --n) {
      if (bus.send(peer, frames_.front()) == SendResult::kBusy) return false;
      bytes_ -= size_of(frames_.front());
      frames_.pop_front();
    }
    return frames_.empty();
  }
  // When to flush again.
  TimePoint due(TimePoint now) const {
    if (frames_.empty()) return TimePoint::max();
    return now < not_before_ ? not_before_ : now + kPause;
  }

  std::size_t size() const { return frames_.size(); }

 private:
  static std::size_t size_of(const Frames& frames) {
    std::size_t bytes = 0;
    for (const Bytes& part : frames) bytes += part.size();
    return bytes;
  }

  bool keep(Frames frames, std::size_t at) {
    const std::size_t bytes = size_of(frames);
    if (frames_.size() >= kMaxFrames || bytes_ + bytes > kMaxBytes) return false;
    bytes_ += bytes;
    frames_.insert(frames_.begin() + static_cast<std::ptrdiff_t>(at), std::move(frames));
    return true;
  }

  std::deque<Frames> frames_;
  std::size_t n_returned_ = 0;  // of them, at the front, since the last that were handed over
  std::size_t bytes_ = 0;
  std::size_t n_at_once_ = kMostAtOnce;
  bool handed_over_ = false;  // and none of it came back yet
  Duration pause_ = kPause;
  TimePoint not_before_{};
};

}  // namespace foretoken
