// What the owner of a link to drafts can tell the target engine: how a sequence stands with its
// draft. A door of its own, because local proposers have nothing to say here. The engine asks
// before it waits and when it explains a round without proposals; it never sends or receives.
// Called by the engine's thread.
#pragma once

#include "common/base/clock.h"
#include "common/base/ids.h"

namespace foretoken {

// Whether proposals of a sequence's draft may be waited for now. Not the state of its attachment,
// which only messages and misses change: an active one is unready while its draft has asked for a
// pause, and the engine has no use for the difference between a detached and a closed one.
enum class DraftReadiness : std::uint8_t {
  kDetached,  // no draft
  kUnasked,   // there is one, and nothing was asked of it yet
  kOpening,   // a draft is catching up; never waited for
  kReady,     // answers in time
  kUnready,   // overdue, or it asked for a pause; never waited for
};

struct DraftOutlook {
  DraftReadiness readiness = DraftReadiness::kDetached;
  // The last ask with a budget has no answer yet; an empty answer is one.
  bool is_under_way = false;
  // When its first token is expected, from now, of one that begins anew; or the whole answer, of a
  // draft that sends no token before the last.
  Duration arrives_in{};
  std::uint32_t n_unseen = 0;  // tokens the target chose since that chain began: it may be void
  Duration per_token{};  // between tokens that are sent as they are made; 0: they come at once
  Duration next_in{};    // if not at once: the next token of a chain that goes on

  bool is_stream() const { return per_token > Duration::zero(); }
};

class DraftWatch {
 public:
  virtual ~DraftWatch() = default;
  virtual DraftOutlook outlook(SeqId seq, TimePoint now) const = 0;
};

}  // namespace foretoken
