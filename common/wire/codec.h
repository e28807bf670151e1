// Message <-> frames. Total: any bytes give a message or an Error, never an exception, and nothing
// is reserved for a length that the bytes at hand do not back. Pure: uses no socket and no clock.
// The one door of msgpack-cxx, which packs; reading is our own (msgpack_reader.h), because a
// receiver must judge before it believes.
//
//   auto frames = try_encode(speaker, request, Tokens{.position = 7, .ids = {1, 2}});
//   if (frames.ok()) bus.send(peer, *frames);
//   auto in = decode(delivery.frames);  if (!in.ok()) ...;  if (auto* tokens =
//   std::get_if<Tokens>(&in->message)) ...
#pragma once

#include "common/base/bytes.h"
#include "common/base/result.h"
#include "common/messages/messages.h"
#include "common/wire/envelope.h"

namespace foretoken::wire {

struct Incoming {
  Header header;
  Message message;
};

// Fills in type and body size. What the receiver's decode would refuse for its size is an Error
// here (limits.h): a client often decides how large a message grows.
Result<Frames> try_encode(Header header, const Message& message);
inline Result<Frames> try_encode(Speaker& speaker, RequestId request, const Message& message) {
  return try_encode(speaker.next(request), message);
}
// For messages whose size no peer decides, and for tests: one too large ends the process.
Frames encode(Header header, const Message& message);
inline Frames encode(Speaker& speaker, RequestId request, const Message& message) {
  return encode(speaker.next(request), message);
}

// Parts: header, body, at most kMaxParts - 2 blobs. No message of this version has any: those of a
// newer minor version are passed over, as its fields are.
Result<Incoming> decode(const Frames& frames);

}  // namespace foretoken::wire
