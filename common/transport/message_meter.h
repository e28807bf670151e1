// The size of the message that a client is sending, from the headers of frames in the bytes of its
// connection: ZMTP 3 and 2, and 1 with and without a greeting. libzmq limits the size of a part and
// the number of whole messages that wait, but counts a message only at its last part, and keeps the
// parts before it without a limit. On a connection with keys each frame is whole, and what is
// sealed in it is not seen here. Pure; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace foretoken {

class MessageMeter {
 public:
  explicit MessageMeter(std::size_t limit_bytes) : limit_(limit_bytes) {}

  // The next bytes of the connection. False from then on when the parts of a message that is not
  // complete are larger than the limit, with what libzmq needs to keep each.
  bool fits(std::string_view bytes);

 private:
  void read_greeting();
  void read_header();
  std::uint8_t byte(std::size_t at) const { return static_cast<std::uint8_t>(head_[at]); }

  std::size_t limit_;
  std::size_t size_ = 0;  // of the parts so far
  std::size_t skip_ = 0;  // bytes until the next header
  std::string head_;      // of the greeting, or of a frame
  bool in_greeting_ = true;
  bool is_zmtp1_ = false;
};

}  // namespace foretoken
