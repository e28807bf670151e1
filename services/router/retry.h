// The retry timer of a question to a worker: whether one is open, and when it is asked again. The
// pauses double up to a limit. Pure; one thread.
#pragma once

#include <algorithm>

#include "common/base/clock.h"

namespace foretoken {

// How long a worker may be silent before it is asked again: at first, and at most.
struct Silence {
  Duration first = std::chrono::milliseconds(500);
  Duration longest = std::chrono::seconds(4);
};

// How long to wait before a question is asked again that was last asked after `before`: twice as
// long.
inline Duration longer_silence(Duration before, const Silence& silence) {
  return std::min(silence.longest, std::max(silence.first, 2 * before));
}

class Retry {
 public:
  bool is_open() const { return open_; }
  bool is_due(TimePoint now) const { return open_ && now >= again_; }
  bool loss_suspected() const { return loss_suspected_; }
  // When it is asked again; TimePoint::max() while none is open.
  TimePoint due() const { return open_ ? again_ : TimePoint::max(); }

  // A new question, or the worker answered: the silence begins now.
  void ask(TimePoint now, const Silence& silence) {
    *this = {};
    open_ = true;
    interval_ = silence.first;
    again_ = now + interval_;
  }
  // The same one once more.
  void ask_again(TimePoint now, const Silence& silence) {
    open_ = true;
    loss_suspected_ = false;
    interval_ = longer_silence(interval_, silence);
    again_ = now + interval_;
  }
  // A gap shows that a message was lost. Not asked for at once: it may only have been overtaken,
  // and one question heals many losses.
  void suspect_loss(TimePoint now, const Silence& silence) {
    if (loss_suspected_) return;
    open_ = loss_suspected_ = true;
    again_ = now + silence.first / 16;
  }
  // The worker has said when.
  void put_off(TimePoint until) { again_ = until; }
  void close() { *this = {}; }

 private:
  bool open_ = false;
  bool loss_suspected_ = false;
  TimePoint again_{};
  Duration interval_{};
};

}  // namespace foretoken
