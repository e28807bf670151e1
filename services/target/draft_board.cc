#include "services/target/draft_board.h"

#include <algorithm>
#include <utility>

namespace foretoken {

TimePoint DraftBoard::due() const {
  const bool rests = state_ == State::kOff || state_ == State::kDown || state_ == State::kRead;
  return rests ? TimePoint::max() : due_;
}

void DraftBoard::link_up(TimePoint now) {
  if (state_ != State::kDown) return;
  state_ = State::kDue;
  due_ = now;
}

void DraftBoard::link_down() {
  if (state_ == State::kOff) return;
  state_ = State::kDown;
  why_not_.clear();
}

bool DraftBoard::tick(TimePoint now) {
  if (now < due()) return false;
  if (state_ == State::kOffered)
    rest(now, "it does not answer the offer of a board");
  else if (state_ == State::kRefused)
    state_ = State::kDue;
  return state_ == State::kDue;
}

void DraftBoard::offered(TimePoint now, std::uint64_t token) {
  if (state_ != State::kDue) return;
  state_ = State::kOffered;
  token_ = token;
  due_ = now + kPatience;
}

void DraftBoard::not_offered(TimePoint now) {
  if (state_ == State::kDue) due_ = now + kOfferAgain;
}

void DraftBoard::offer_dropped(TimePoint now, std::uint64_t token) {
  if (!counts(token)) return;
  state_ = State::kDue;
  due_ = now + kOfferAgain;
}

bool DraftBoard::opened(std::uint64_t token) {
  if (!counts(token)) return false;
  state_ = State::kRead;
  n_failures_ = 0;
  why_not_.clear();
  return true;
}

bool DraftBoard::refused(TimePoint now, std::uint64_t token, std::string why) {
  if (!counts(token)) return false;
  rest(now, std::move(why));
  token_ = 0;
  return true;
}

bool DraftBoard::counts(std::uint64_t token) const {
  return token != 0 && token == token_ && (state_ == State::kOffered || state_ == State::kRefused);
}

void DraftBoard::rest(TimePoint now, std::string why) {
  state_ = State::kRefused;
  why_not_ = std::move(why);
  due_ = now + std::min<Duration>(kLongestPause, kFirstPause * (1 << std::min(n_failures_, 16u)));
  ++n_failures_;
}

}  // namespace foretoken
