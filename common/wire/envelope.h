// The fixed header before every body, 56 bytes, little-endian:
//   0 magic "FTKN" · 4 major u8 · 5 minor u8 · 6 type u16 · 8 flags u32 · 12 body bytes u32 · 16
//   request id (high u64, low u64) 32 sender's worker id u64 · 40 its incarnation u64 · 48 its
//   frame number u64
// It is judged before the body is touched, and a router may forward on it alone. Pure: knows no
// message and no socket.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

#include "common/base/bytes.h"
#include "common/base/ids.h"
#include "common/base/result.h"
#include "common/messages/limits.h"
#include "common/messages/types.h"
#include "common/wire/version.h"

namespace foretoken::wire {

inline constexpr std::array<char, 4> kMagic{'F', 'T', 'K', 'N'};

struct Header {
  std::uint8_t major = kVersionMajor;
  std::uint8_t minor = kVersionMinor;
  MessageType type = MessageType::kHello;
  std::uint32_t flags = 0;  // none defined in 1.0: sent as zero, ignored when read
  std::uint32_t body_bytes = 0;
  RequestId request;  // zero in messages that concern no single request
  WorkerId sender;
  Incarnation incarnation;
  std::uint64_t sequence = 0;
  bool operator==(const Header&) const = default;
};

Bytes pack_header(const Header& header);
// Refuses: another length, magic or major version, a body beyond the limit. An unknown type is the
// codec's to refuse.
Result<Header> read_header(std::string_view bytes);

// Who is speaking: one incarnation of a worker, numbering its frames. next() may be called from
// any thread.
class Speaker {
 public:
  Speaker() = default;
  Speaker(WorkerId worker, Incarnation incarnation) : worker_(worker), incarnation_(incarnation) {}
  WorkerId worker() const { return worker_; }
  Incarnation incarnation() const { return incarnation_; }
  // Header of the next frame; type and body size are the codec's to fill in.
  Header next(RequestId request) {
    Header header;
    header.request = request;
    header.sender = worker_;
    header.incarnation = incarnation_;
    header.sequence = std::atomic_ref(sequence_).fetch_add(1, std::memory_order_relaxed) + 1;
    return header;
  }

 private:
  WorkerId worker_;
  Incarnation incarnation_;
  std::uint64_t sequence_ = 0;
};

}  // namespace foretoken::wire
