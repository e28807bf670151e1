// Bytes as they travel: one part of a message, and the parts of one message. Plain standard types,
// so that the codec and the transport can meet without knowing each other.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace foretoken {

using Bytes = std::string;
using Frames = std::vector<Bytes>;

// Most parts of a message. libzmq caps the size of a part, not their number: without this a peer
// could send parts until memory ends.
inline constexpr std::size_t kMaxParts = 8;

}  // namespace foretoken
