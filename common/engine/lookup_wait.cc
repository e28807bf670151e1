#include "common/engine/lookup_wait.h"

#include <algorithm>

namespace foretoken {
namespace {

constexpr int kMostOfPass = 4;     // a wait is at most the fourth part of a pass
constexpr int kForgottenIn = 256;  // passes: answers that took too long are waited for again
constexpr Duration kLongest = std::chrono::milliseconds(10);

}  // namespace

Duration LookupWait::begin(Duration saved, Duration pass, TimePoint now) {
  if (saved <= usual_ || kMostOfPass * usual_ > pass) {
    usual_ -= usual_ / kForgottenIn;
    return {};
  }
  began_ = now;
  return std::min(3 * usual_, pass / kMostOfPass);
}

// What takes longer than others ends the wait, and says that more than that is needed.
Duration LookupWait::end(bool is_owed, TimePoint now) {
  if (!began_) return {};
  const Duration waited = now - *began_;
  began_.reset();
  usual_ = std::min(kLongest, is_owed ? usual_ + usual_ / 4 : usual_ + (waited - usual_) / 8);
  return waited;
}

}  // namespace foretoken
