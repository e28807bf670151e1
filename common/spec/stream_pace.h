// How quickly the tokens of a draft come that sends each as it is made: the first of a chain that
// begins anew, and those after it. Pure: times come as arguments. One thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/base/clock.h"
#include "common/base/ids.h"

namespace foretoken {

class StreamPace {
 public:
  // A question, after a round that verified so many tokens of the draft and left so many at hand.
  // With none at hand the chain begins anew; but where none was verified either, the one that began
  // before is under way still, and holds if its first tokens are those that the target chose.
  void asked(std::uint32_t n_verified, std::uint32_t n_at_hand, TimePoint now) {
    asked_ = now;
    const bool begins = n_verified > 0 || begun_ == TimePoint{};
    if (begins) begun_ = now;
    n_unseen_ = begins || n_at_hand > 0 ? 0 : n_unseen_ + 1;
  }

  // The first token of the chain under way, from now, where none is at hand.
  struct First {
    Duration in{};
    std::uint32_t n_unseen = 0;  // tokens the target chose since it began
  };
  First first_token(TimePoint now) const {
    // Overdue: another one began when the draft heard of the last token.
    if (begun_ + first_ + 2 * per_token_ < now)
      return {std::max(Duration{0}, asked_ + first_ - now), 0};
    return {std::max(Duration{0}, begun_ + first_ - now), n_unseen_};
  }

  // A record with so many tokens for the epoch that was asked then.
  void observe(Epoch epoch, TimePoint asked, std::uint32_t n_tokens, TimePoint at) {
    const bool goes_on = epoch == epoch_ && n_tokens > n_tokens_;
    if (goes_on && n_tokens_ > 0)
      average(per_token_, (at - at_) / static_cast<std::int64_t>(n_tokens - n_tokens_));
    // More than one at once were made before the question came.
    if (epoch != epoch_ && n_tokens == 1) average(first_, at - asked);
    if (epoch != epoch_ || goes_on) {
      epoch_ = epoch;
      n_tokens_ = n_tokens;
    }
    at_ = at;
  }
  bool is_known() const { return first_ > Duration::zero() && per_token_ > Duration::zero(); }
  Duration first() const { return first_; }          // of a chain that begins, from asking
  Duration per_token() const { return per_token_; }  // > 0 where known
  TimePoint latest() const { return at_; }

 private:
  static void average(Duration& known, Duration sample) {
    known = known == Duration::zero() ? sample : (7 * known + sample) / 8;
  }

  Epoch epoch_{};
  std::uint32_t n_tokens_ = 0;  // of the latest record
  TimePoint at_{};              // when it came
  TimePoint asked_{};           // the last question
  TimePoint begun_{};           // the question that the chain under way began with
  std::uint32_t n_unseen_ = 0;
  Duration first_{};
  Duration per_token_{};
};

}  // namespace foretoken
