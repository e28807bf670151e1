// Which part of a pinned buffer the next upload goes through. Two halves by turns: the device reads
// one while the host fills the other, and a half is filled anew only when a mark that was queued
// behind its last copy has been passed. Uses no CUDA: the caller marks and waits. One
// thread.
#pragma once

#include <cstddef>

#include "common/base/check.h"

namespace foretoken::cuda {

class UploadRing {
 public:
  explicit UploadRing(std::size_t bytes) : half_(bytes / 2) {}

  // The most that one upload can be.
  std::size_t most() const { return half_; }

  // Where the next `bytes` go, as an offset; the copy from there is queued before the next call.
  // mark(half): queues a mark of this half (0 or 1), in place of an older one; wait(half): returns
  // when the device has passed it.
  template <class Mark, class Wait>
  std::size_t take(std::size_t bytes, const Mark& mark, const Wait& wait) {
    FORETOKEN_CHECK(bytes <= half_);
    if (used_ + bytes > half_) {
      mark(current_);
      is_marked_[current_] = true;
      current_ = 1 - current_;
      used_ = 0;
      if (is_marked_[current_]) wait(current_);
    }
    const std::size_t at = static_cast<std::size_t>(current_) * half_ + used_;
    used_ += (bytes + kAlign - 1) / kAlign * kAlign;
    return at;
  }

 private:
  static constexpr std::size_t kAlign = 64;
  std::size_t half_;
  std::size_t used_ = 0;
  int current_ = 0;
  bool is_marked_[2] = {};
};

}  // namespace foretoken::cuda
