// A reply in as few bytes as keep it: its fields in their order, without their keys. For the memory
// of one process; nothing else reads it, so it may change with any build.
#pragma once

#include <string_view>

#include "common/base/bytes.h"
#include "common/base/result.h"
#include "common/messages/client.h"

namespace foretoken::wire {

Bytes pack_reply(const ClientReply& reply);
// An error for bytes that are no packed reply, or one with a number that is not finite.
Result<ClientReply> unpack_reply(std::string_view bytes);

}  // namespace foretoken::wire
