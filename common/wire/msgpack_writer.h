// The one door to msgpack-cxx: packs values into bytes. Integers take their shortest form.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/base/bytes.h"

namespace foretoken::wire {

class MsgpackWriter {
 public:
  explicit MsgpackWriter(Bytes& out) : out_(out) {}
  void nil();
  void boolean(bool value);
  void uint(std::uint64_t value);
  void integer(std::int64_t value);
  void float32(float value);
  void float64(double value);
  void str(std::string_view value);
  void bin(std::string_view value);
  void array(std::size_t size);  // then its elements
  void map(std::size_t size);    // then its keys and values

 private:
  void put(char marker, std::uint64_t bits, int bytes);
  Bytes& out_;
};

}  // namespace foretoken::wire
