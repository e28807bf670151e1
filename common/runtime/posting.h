// How a message is handed to the sockets: what it is about, how long it may wait for a socket that
// is full, and whether it is of use without those before it. Plain data.
#pragma once

#include <cstdint>

#include "common/transport/transport.h"

namespace foretoken {

// Messages under one ticket to one peer are a series.
enum class Part : std::uint8_t {
  kFirst,  // begins one, and takes the place of all that was sent about the same before
  kNext,   // of no use without those before it
};

enum class Room : std::uint8_t {
  kShared,
  // For what ends a request: more room for one peer than the shared messages have.
  kReserved,
};

struct Posting {
  Ticket ticket = {};
  // While its peer takes nothing. 0: it is tried once, before all that waits.
  Duration patience{};
  Part part = Part::kFirst;
  Room room = Room::kShared;
};

// Between a draft and a target: their connection, or the link beside it where there is one and it
// has room.
enum class Way : std::uint8_t { kConnection, kShortest };

inline constexpr Duration kAsLongAsItTakes = Duration::max();

}  // namespace foretoken
