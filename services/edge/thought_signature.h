// The signature of a thinking block, as Anthropic's clients expect one: HMAC-SHA-256 of its text
// under a key that this process made. What comes back is not checked: thoughts are the client's to
// change, as every other text of a conversation is.
#pragma once

#include <string>
#include <string_view>

namespace foretoken::edge {

std::string thought_signature(std::string_view thought);  // hexadecimal

}  // namespace foretoken::edge
