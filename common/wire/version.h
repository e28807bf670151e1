// Version of the protocol between services. Minor: fields or messages were appended, old peers go
// on. Major: something that was sent before now means something else, and such a peer is refused by
// name.
#pragma once

#include <cstdint>

namespace foretoken::wire {

inline constexpr std::uint8_t kVersionMajor = 1;
inline constexpr std::uint8_t kVersionMinor = 6;

}  // namespace foretoken::wire
