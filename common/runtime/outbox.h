// Frames for one peer that could not leave at once, bounded, in order: what the socket gave back
// goes before what came later, and not at once, for a connection that was full a moment ago is full
// still. Work thread only.
#pragma once

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

  // Sends, or keeps for later. False: there is no room, the frames are lost.
  bool send(Bus& bus, const Peer& peer, Frames frames) {
    if (flush(bus, peer)) {
      const SendResult result = bus.send(peer, frames);
      if (result == SendResult::kSent) return true;
      if (result == SendResult::kUnknown) return false;
    }
    return keep(std::move(frames), frames_.size());
  }

  // The socket gave these back: they go first, in the order they come back in. False: no room.
  bool came_back(Frames frames, TimePoint now) {
    not_before_ = now + kPause;
    if (!keep(std::move(frames), n_returned_)) return false;
    ++n_returned_;
    return true;
  }

  // True if nothing waits any more.
  bool flush(Bus& bus, const Peer& peer) {
    if (frames_.empty()) return true;
    if (bus.now() < not_before_) return false;
    while (!frames_.empty()) {
      if (bus.send(peer, frames_.front()) == SendResult::kBusy) return false;
      bytes_ -= size_of(frames_.front());
      frames_.pop_front();
      if (n_returned_ > 0) --n_returned_;
    }
    return true;
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
  std::size_t n_returned_ = 0;  // of them, at the front
  std::size_t bytes_ = 0;
  TimePoint not_before_{};
};

}  // namespace foretoken
