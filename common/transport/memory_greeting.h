// How the two sides of a link through shared memory hand each other their memory: once, a greeting
// over their Unix socket, with the descriptor of the sender's region. A stranger may send anything:
// what is not a greeting to the letter is refused here, and every descriptor that came with it
// is closed. Whether the memory is what it seems is SharedRegion's to judge. Never waits.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "common/base/fd.h"

namespace foretoken {

inline constexpr std::size_t kLeastRing = 4096;
inline constexpr std::size_t kLargestRing = 1 << 20;  // a peer's counts as ours once we touch it

constexpr bool is_ring_size(std::size_t n_bytes) {
  return std::has_single_bit(n_bytes) && n_bytes >= kLeastRing && n_bytes <= kLargestRing;
}

struct MemoryGreeting {
  enum class Kind : std::uint8_t { kNotYet, kLeft, kWrong, kSound };
  Kind kind = Kind::kNotYet;
  std::uint32_t ring_bytes = 0;  // of the other side; a sound one has a ring's size
  Fd region;
};

// False: the other side has left.
[[nodiscard]] bool send_greeting(int socket, std::size_t ring_bytes, int region);
MemoryGreeting receive_greeting(int socket);

}  // namespace foretoken
