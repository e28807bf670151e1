// What answers take of the memory, with what their texts and lists have on the heap: the limits on
// what is kept of them count with these.
#pragma once

#include <cstddef>

#include "common/messages/client.h"

namespace foretoken::edge {

std::size_t bytes_of(const wire::LogprobEntry& entry);
std::size_t bytes_of(const wire::ClientReply& reply);
// What a piece says of the answer, and what of the prompt. The first piece alone has the latter,
// which may be many times what a reader is behind: so they are counted apart.
std::size_t bytes_of(const wire::ClientPiece& piece);
std::size_t bytes_of_prompt(const wire::ClientPiece& piece);

}  // namespace foretoken::edge
