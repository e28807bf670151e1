// What the listing says, for people: one log line for a message, and the tables of
// docs/reference/messages.md.
#pragma once

#include <string>
#include <string_view>

#include "common/wire/codec.h"

namespace foretoken::wire {

std::string_view name_of(const Message& message);  // "Hello"
std::string_view name_of(MessageType type);        // "Hello"; "unknown" off the list
std::string print(
    const Message& message);  // Tokens{position=7 ids=[1 2] ...}; long lists and texts are cut
std::string document();       // markdown: header, messages, records, every field

}  // namespace foretoken::wire
