// Strict reader of msgpack from outside. Nothing is reserved and nothing copied: strings are views,
// and a declared length is compared with the bytes that remain before it is believed. The first
// failure sticks and says what was expected; every later call fails too. No exception. Legal
// msgpack in other than its shortest form is accepted; ext types are not.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/messages/limits.h"

namespace foretoken::wire {

enum class MsgpackKind : std::uint8_t {
  kNil,
  kBool,
  kInteger,
  kFloat,
  kStr,
  kBin,
  kArray,
  kMap,
  kEnd,
  kBad
};

std::string_view name_of(MsgpackKind kind);

// An integer of either sign: msgpack's range is wider than int64.
struct MsgpackInteger {
  bool negative = false;
  std::uint64_t magnitude = 0;  // of the value itself, so -1 is {true, 1}
};

class MsgpackReader {
 public:
  explicit MsgpackReader(std::string_view bytes) : rest_(bytes) {}

  MsgpackKind peek() const;
  bool nil();
  bool boolean(bool& value);
  bool integer(MsgpackInteger& value);
  bool uint(std::uint64_t& value, std::uint64_t most);
  bool sint(std::int64_t& value, std::int64_t least, std::int64_t most);
  bool real(double& value);    // float32 or float64, finite
  bool number(double& value);  // also an integer
  bool str(std::string_view& value, std::size_t most = kMaxStringBytes);
  bool bin(std::string_view& value, std::size_t most = kMaxBinBytes);
  // Arrays and maps count as one level of depth between the opening call and leave().
  bool array(std::size_t& size, std::size_t most = kMaxArray);
  bool map(std::size_t& size, std::size_t most = kMaxMap);
  void leave() { --depth_; }
  // One value of any kind. What is not read is not judged: it may be no finite number, or have
  // more elements than any reader takes.
  bool skip();

  bool at_end() const { return rest_.empty(); }
  std::size_t remaining() const { return rest_.size(); }
  bool failed() const { return !error_.empty(); }
  const std::string& error() const { return error_; }
  bool fail(std::string sentence);

 private:
  bool expected(const char* what);
  bool any_real(double& value);
  bool take(std::size_t size, std::string_view& bytes);
  bool big_endian(std::size_t size, std::uint64_t& value);
  bool sized(std::uint8_t first8, std::size_t most, std::string_view& value);
  bool enter(std::size_t size, std::size_t most, std::size_t bytes_each, const char* what);

  std::string_view rest_;
  std::string error_;
  int depth_ = 0;
};

// Whole code points, no surrogates, no overlong forms, nothing beyond U+10FFFF.
bool is_utf8(std::string_view text);

}  // namespace foretoken::wire
