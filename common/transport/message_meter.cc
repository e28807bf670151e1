#include "common/transport/message_meter.h"

#include <algorithm>
#include <utility>

namespace foretoken {
namespace {

constexpr std::size_t kLastOfSignature = 9, kRevision = 10;  // places in a greeting
constexpr std::size_t kGreetingBytesOfZmtp2 = 12, kGreetingBytesOfZmtp3 = 64;
constexpr std::uint8_t kMore = 1, kLong = 2, kCommand = 4;  // flags of a frame
constexpr std::size_t kPartBytes = 64;                      // a zmq_msg_t, also of an empty part

}  // namespace

bool MessageMeter::fits(std::string_view bytes) {
  while (!bytes.empty() && size_ <= limit_) {
    if (skip_ == 0) {
      head_ += bytes.front();
      bytes.remove_prefix(1);
      if (in_greeting_)
        read_greeting();
      else
        read_header();
    } else {
      const std::size_t n = std::min(skip_, bytes.size());
      skip_ -= n;
      bytes.remove_prefix(n);
    }
  }
  return size_ <= limit_;
}

void MessageMeter::read_greeting() {
  const std::size_t n = head_.size();
  const bool has_greeting =
      byte(0) == 0xff && (n <= kLastOfSignature || byte(kLastOfSignature) & 1);
  if (has_greeting && n <= kRevision) return;
  in_greeting_ = false;
  const std::string head = std::exchange(head_, {});
  if (!has_greeting) {
    is_zmtp1_ = true;
    fits(head);
    return;
  }
  const auto revision = static_cast<std::uint8_t>(head[kRevision]);
  is_zmtp1_ = revision == 0;
  skip_ = (revision < 2 ? kGreetingBytesOfZmtp2 : kGreetingBytesOfZmtp3) - n;
}

// ZMTP 2 and 3: flags, length. ZMTP 1: length, with 0xff before one of eight bytes, then flags,
// which are counted in the length.
void MessageMeter::read_header() {
  const bool is_long = is_zmtp1_ ? byte(0) == 0xff : (byte(0) & kLong) != 0;
  const std::size_t length_at = is_zmtp1_ && !is_long ? 0 : 1;
  const std::size_t length_end = length_at + (is_long ? 8 : 1);
  if (head_.size() < length_end + (is_zmtp1_ ? 1 : 0)) return;
  std::uint64_t length = 0;
  for (std::size_t at = length_at; at < length_end; ++at) length = length << 8 | byte(at);
  if (is_zmtp1_ && length > 0) --length;
  const std::uint8_t flags = byte(is_zmtp1_ ? length_end : 0);
  head_.clear();
  skip_ = length;
  // A command stands between the parts of a message and ends none. One with more to come is none of
  // ZMTP, and libzmq keeps some of them.
  if ((flags & kMore) != 0)
    size_ = length > limit_ ? limit_ + 1 : size_ + length + kPartBytes;
  else if (is_zmtp1_ || (flags & kCommand) == 0)
    size_ = 0;
}

}  // namespace foretoken
