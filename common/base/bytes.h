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

// What a message takes beside its bytes while it waits, so that empty ones have a bound, too.
inline constexpr std::size_t kMessageBytes = 128;

// Bytes that a message takes while it waits.
inline std::size_t waiting_bytes(const Frames& frames) {
  std::size_t n_bytes = kMessageBytes;
  for (const Bytes& part : frames) n_bytes += part.size();
  return n_bytes;
}

}  // namespace foretoken
