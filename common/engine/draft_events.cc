#include "common/engine/draft_events.h"

#include "common/base/micros.h"

namespace foretoken {

wire::Need mismatch_of(const wire::Attach& attach) {
  return {.seq = attach.seq,
          .lease = attach.lease,
          .known = 0,
          .prefix = attach.root,
          .reason = NeedReason::kMismatch};
}

wire::DraftBusy busy_with(const wire::Attach& attach, Duration retry_after) {
  return {.seq = attach.seq, .lease = attach.lease, .retry_after_us = short_micros(retry_after)};
}

}  // namespace foretoken
