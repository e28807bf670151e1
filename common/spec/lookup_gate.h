// Whether a memory of texts is asked for a sequence after a round. A look-up takes both processes a
// fraction of a millisecond, so it need not bring much; where it brings next to nothing it is asked
// for after every 16th round only, to notice a text that has become one seen before. What an ask
// brought are the tokens until the next that stood and that no other source had said. Pure; one
// thread.
#pragma once

#include <cstdint>
#include <utility>

namespace foretoken {

class LookupGate {
 public:
  static constexpr std::uint32_t kLongestPause = 16;  // rounds

  // `gain`: tokens that an ask is expected to bring before any was seen.
  explicit LookupGate(double gain = 1) : gain_(gain) {}

  // Whether to ask now, if an ask has to bring so many tokens.
  bool is_due(double least_gain) const { return gain_ >= least_gain || n_rounds_ >= kLongestPause; }
  // After a round in which so many tokens of the memory alone stood.
  void observe(std::uint32_t n_tokens) {
    ++n_rounds_;
    n_brought_ += n_tokens;
    gain_ += n_tokens / kFollowed;
  }
  // It is asked now. Returns what the ask before brought.
  std::uint32_t asked() {
    n_rounds_ = 0;
    gain_ -= gain_ / kFollowed;
    return std::exchange(n_brought_, 0);
  }
  double gain() const { return gain_; }  // tokens that an ask brings

 private:
  static constexpr double kFollowed = 16;  // asks: so many of the last count

  double gain_;
  std::uint32_t n_rounds_ = 0;   // since the last ask
  std::uint32_t n_brought_ = 0;  // by it
};

}  // namespace foretoken
