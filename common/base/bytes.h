// Bytes as they travel: one part of a message, and the parts of one message. Plain standard types, so that the codec and
// the transport can meet without knowing each other.
#pragma once

#include <string>
#include <vector>

namespace foretoken {

using Bytes = std::string;
using Frames = std::vector<Bytes>;

}  // namespace foretoken
