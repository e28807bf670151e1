// A sequence at a draft, as its target sees it: a state machine without clock, socket or log.
// Events come in with the time, what is to be sent goes out as an action; the draft proposer owns
// one per sequence and draft and does the sending. Nothing here can hold up a step: the only
// question it answers about waiting is "may I", and the answer is yes for a draft that is on time
// and for no other. docs/protocol.md has the table; attachment_test holds it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/spec/stream_pace.h"

namespace foretoken {

enum class AttachmentState : std::uint8_t { kDetached, kOpening, kActive, kLagging, kClosed };

// What the owner must do now. A release has already happened here; the owner tells the router and
// may pick another draft.
enum class AttachmentAction : std::uint8_t {
  kNone,
  kSendAttach,
  kSendPropose,
  kSendClose,
  kRelease,
  kReleaseBusy,  // as a release, but the draft answered BUSY: not reported as one that does not
  kLeave         // for good, and the draft did answer: not reported either
};

struct AttachmentRules {
  // An answer is overdue after 4 x its usual time, or 2 steps of the target if that is longer: so
  // rarely does the target look, and waiting so long costs it nothing. Never earlier than the floor
  // nor later than the ceiling.
  Duration miss_floor = std::chrono::milliseconds(20);
  Duration miss_ceiling = std::chrono::seconds(10);
  // Beyond the expected time of prefill, and twice as long each time that was not enough.
  Duration opening_grace = std::chrono::seconds(2);
  Duration longest_grace = std::chrono::seconds(64);
  Duration probe_after = std::chrono::seconds(1);  // or 2 steps of the target
  std::uint32_t max_misses = 3;                    // in a row; then the draft is let go
  std::uint32_t max_malformed = 16;                // records of one attachment
  // A draft that lacks tokens is sent them again, at first at once; then not before this pause, and
  // one twice as long after each time that brought no usable record.
  Duration resend_floor = std::chrono::milliseconds(20);
  Duration resend_ceiling = std::chrono::seconds(2);
  std::uint32_t max_needs = 8;  // resent so often for nothing: then the draft is let go
};

// What the owner measured.
struct AttachmentPace {
  Duration prefill{};  // until a draft that is opened now may answer
  Duration step{};     // of the target
};

class Attachment {
 public:
  explicit Attachment(const AttachmentRules& rules = {}) : rules_(rules) {}

  AttachmentState state() const { return state_; }
  Lease lease() const { return lease_; }
  std::uint32_t misses() const { return misses_; }
  // Proposes travel in these states, so that a draft can catch up in silence.
  bool is_attached() const;
  // Let go for good: this draft is not tried again, as one that is late would be.
  bool is_over() const { return state_ == AttachmentState::kDetached && !probing_; }
  // A step may wait for this draft: active, not busy, nothing overdue.
  bool may_wait(TimePoint now) const;
  // False while the draft has asked for a pause: propose with budget 0, which only keeps it
  // current.
  bool may_ask(TimePoint now) const { return now >= busy_until_; }
  // How long an answer may take before it counts as a miss.
  Duration patience() const;
  // Expected time from asking to a usable answer; zero before the first.
  Duration answer_ewma() const { return answer_ewma_; }
  // Of a draft that sends tokens before its answer is complete.
  const StreamPace& stream() const { return stream_; }
  StreamPace& stream() { return stream_; }
  // The last ask with a budget has no answer yet; it was asked at asked_at().
  bool is_under_way() const { return is_attached() && last_asked_ > last_answered_; }
  TimePoint asked_at() const { return last_asked_at_; }
  // When this was asked; nothing: it was not, or too many asks ago, or it is answered.
  std::optional<TimePoint> asked_at(Epoch epoch) const;

  // A different draft, or the same in a new incarnation: a new lease. Earlier leases are dead by
  // their number.
  AttachmentAction assigned(TimePoint now, const AttachmentPace& pace);
  // The draft went away: unassigned, disconnected, silent, or restarted.
  AttachmentAction lost(TimePoint now);
  void asked(Epoch epoch, std::uint32_t budget, TimePoint now);
  // A record came that could be used under our lease, whichever epoch it answers. The first of an
  // epoch is timed. A draft that was let go for its silence is back with it.
  AttachmentAction answered(Epoch epoch, TimePoint now);
  // A usable record that has not all tokens of its answer, n so far.
  AttachmentAction progressed(Epoch epoch, std::uint32_t n_tokens, TimePoint now);
  // The draft lacks the sequence (evicted, unknown) or only some tokens of it (gap, mismatch).
  // What is asked for again too soon is not sent: a draft that still lacks it asks again. One that
  // lacks the sequence after BUSY has no room for it: the sequence is let go, and tried there again
  // later.
  AttachmentAction needs_everything(TimePoint now, const AttachmentPace& pace);
  AttachmentAction needs_tail(TimePoint now);
  // It will never serve this sequence: let go, and not tried again.
  AttachmentAction refused(TimePoint now);
  AttachmentAction busy(TimePoint now, Duration retry_after);
  AttachmentAction malformed(TimePoint now);
  // Call before each step: notices misses, gives up, probes.
  AttachmentAction tick(TimePoint now, const AttachmentPace& pace);
  AttachmentAction closed();

 private:
  AttachmentAction release(TimePoint now);
  void is_alive(TimePoint now);
  AttachmentAction open(TimePoint now, const AttachmentPace& pace);
  AttachmentAction resend(TimePoint now, AttachmentAction what);

  static constexpr std::size_t kRememberedAsks = 8;
  struct AskedAt {
    Epoch epoch;
    TimePoint at;
  };

  AttachmentRules rules_;
  AttachmentState state_ = AttachmentState::kDetached;
  Lease lease_{0};
  std::uint32_t misses_ = 0;
  std::uint32_t malformed_ = 0;
  std::uint32_t needs_ = 0;  // resent since the last usable record
  TimePoint resend_at_{};    // not before
  bool probing_ = false;     // detached after misses: the same draft is tried again
  Epoch last_asked_{0};      // with a budget
  Epoch last_answered_{0};
  TimePoint last_asked_at_{};
  bool waiting_ = false;  // an ask with a budget is unanswered
  // BUSY came, and since then no usable record, no new ATTACH and no release by misses.
  bool was_busy_ = false;
  TimePoint waiting_since_{};
  TimePoint opening_until_{};
  TimePoint probe_at_{};
  TimePoint busy_until_{};
  Duration answer_ewma_{0};
  StreamPace stream_;
  Duration step_{0};                // of the target
  std::uint32_t n_unanswered_ = 0;  // openings in a row that ended without an answer, at any draft
  std::array<AskedAt, kRememberedAsks> asks_{};  // to time answers that come late, too
};

}  // namespace foretoken
