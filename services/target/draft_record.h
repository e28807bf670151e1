// What a draft's guesses have been worth to this target, and whether it is set aside for it: a weak
// draft is the length controller's business, but one of which nothing is ever accepted, or whose
// records are malformed, is broken or lies, and its guesses cost rows. It is tried again later, and
// each time that this was for nothing, later still. Pure: time comes in. One thread.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/clock.h"

namespace foretoken {

struct DraftRecordRules {
  std::uint32_t n_judged = 1000;       // guesses verified; then it is judged, and counted anew
  std::uint32_t n_judged_again = 250;  // the same while it is being tried again
  std::uint32_t least_percent = 1;     // of them accepted, or it is set aside
  std::uint32_t max_malformed = 32;    // records among them; at once
  Duration first_pause = std::chrono::seconds(30);  // doubled each time
  Duration longest_pause = std::chrono::minutes(5);
};

class DraftRecord {
 public:
  DraftRecord() = default;
  explicit DraftRecord(const DraftRecordRules& rules) : rules_(rules) {}

  void verified(std::uint32_t n_guesses, std::uint32_t n_accepted);
  void malformed() { ++n_malformed_; }
  // True: from now on it is set aside, for reason().
  bool judge(TimePoint now);

  bool is_aside(TimePoint now) const { return now < aside_until_; }
  Duration pause_left(TimePoint now) const;
  const std::string& reason() const { return reason_; }  // of the last time

 private:
  DraftRecordRules rules_;
  std::uint64_t n_guesses_ = 0, n_accepted_ = 0, n_malformed_ = 0;  // since it was last judged
  std::uint32_t n_times_ = 0;                                       // set aside in a row
  TimePoint aside_until_{};
  std::string reason_;
};

}  // namespace foretoken
