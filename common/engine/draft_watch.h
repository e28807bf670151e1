// What the owner of a link to drafts can tell the target engine: how a sequence stands with its
// draft. A door of its own, because local proposers have nothing to say here. The engine asks
// before it waits and when it explains a round without proposals; it never sends or receives.
// Called by the engine's thread.
#pragma once

#include "common/base/clock.h"
#include "common/base/ids.h"

namespace foretoken {

enum class DraftState : std::uint8_t {
  kDetached,  // no draft
  kUnasked,   // there is one, and nothing was asked of it yet
  kOpening,   // a draft is catching up; never waited for
  kActive,    // answers in time
  kLagging,   // overdue; never waited for
};

struct DraftOutlook {
  DraftState state = DraftState::kDetached;
  // The last ask with a budget has no answer yet; an empty answer is one.
  bool is_under_way = false;
  Duration arrives_in{};  // when the answer is expected, from now
};

class DraftWatch {
 public:
  virtual ~DraftWatch() = default;
  virtual DraftOutlook outlook(SeqId seq, TimePoint now) const = 0;
};

}  // namespace foretoken
