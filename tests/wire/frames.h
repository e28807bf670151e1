// Frames around a body that no sender would pack.
#pragma once

#include <utility>

#include "common/wire/envelope.h"

namespace foretoken::wire {

inline Frames frames_of(MessageType type, Bytes body) {
  Header header = Speaker({7}, {9}).next({1, 2});
  header.type = type;
  header.body_bytes = static_cast<std::uint32_t>(body.size());
  return {pack_header(header), std::move(body)};
}

}  // namespace foretoken::wire
