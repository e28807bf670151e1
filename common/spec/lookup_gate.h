// Whether a memory of texts is asked for a sequence after a round. A look-up takes both processes a
// fraction of a millisecond, so it need not bring much; where it brings next to nothing it is asked
// for after every 16th round only, to notice a text that has become one seen before. What an ask
// brought are the tokens until the next that stood and that no other source had said. Where others
// have said plenty already it is counted apart, and expected to bring nothing until it did. Pure;
// one thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

namespace foretoken {

class LookupGate {
 public:
  static constexpr std::uint32_t kLongestPause = 16;      // rounds
  enum class AtHand : std::uint8_t { kLittle, kPlenty };  // tokens of other sources, when it asks

  // `gain`: tokens that an ask with little at hand is expected to bring before any was seen.
  // `n_rounds`: without an ask before this text.
  explicit LookupGate(double gain = 1, std::uint32_t n_rounds = 0)
      : gains_{gain, 0}, n_rounds_(n_rounds) {}

  // Whether to ask now, if an ask has to bring so many tokens.
  bool is_due(double least_gain, AtHand at_hand) const {
    return gain_with(at_hand) >= least_gain || n_rounds_ >= kLongestPause;
  }
  // After a round in which so many tokens of the memory alone stood.
  void observe(std::uint32_t n_tokens) {
    ++n_rounds_;
    n_brought_ += n_tokens;
    gains_[index(asked_)] += n_tokens / kFollowed;
  }
  // It is asked now.
  void ask(AtHand at_hand) {
    n_rounds_ = n_brought_ = 0;
    was_asked_ = true;
    asked_ = at_hand;
    gains_[index(at_hand)] -= gain_with(at_hand) / kFollowed;
  }
  // By the last ask, if that was one with little at hand.
  std::optional<std::uint32_t> n_brought() const {
    if (!was_asked_ || asked_ == AtHand::kPlenty) return std::nullopt;
    return n_brought_;
  }
  double gain() const { return gain_with(asked_); }  // tokens that an ask like the last brings

 private:
  static constexpr double kFollowed = 16;  // asks: so many of the last count
  static std::size_t index(AtHand at_hand) { return static_cast<std::size_t>(at_hand); }
  double gain_with(AtHand at_hand) const { return gains_[index(at_hand)]; }

  std::array<double, 2> gains_;
  AtHand asked_ = AtHand::kLittle;  // the last time
  bool was_asked_ = false;
  std::uint32_t n_rounds_ = 0;   // since the last ask
  std::uint32_t n_brought_ = 0;  // by it
};

}  // namespace foretoken
