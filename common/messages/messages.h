// Every message between services, every field, once. This is the specification of form;
// docs/protocol.md says who owes what to whom. From the same listing come packing, unpacking,
// printing, documentation and random messages; they are in common/wire. A message is plain data: it
// holds no bytes, and engines take and give it as it is. The namespace is that of the protocol.
//
// A body is a msgpack array; a field's number is its place, starting at 1. Growing: append with a
// default and the minor version it came with (`v(8, "x", m.x, "...", 1)`); never renumber, never
// reuse; a dead field stays as `unused_...`. Token ids travel as int32, floats as binary32,
// little-endian, in one msgpack bin each.
#pragma once

#include <variant>

#include "common/messages/control.h"
#include "common/messages/draft.h"
#include "common/messages/request.h"

namespace foretoken::wire {

using Message = std::variant<Hello,
                             HelloReply,
                             Heartbeat,
                             HeartbeatReply,
                             Goodbye,
                             Assign,
                             Unassign,
                             DraftLost,
                             MetricsRequest,
                             MetricsReply,  //
                             Encode,
                             Encoded,
                             Open,
                             Opened,
                             Busy,
                             Tokens,
                             Done,
                             Close,
                             Failed,  //
                             StreamOpen,
                             Decode,
                             Text,
                             StreamClose,  //
                             Attach,
                             Propose,
                             Proposal,
                             Need,
                             CloseSequence,
                             DraftBusy,
                             LinkAsk,
                             LinkOffer,
                             LinkOpen>;

}  // namespace foretoken::wire
