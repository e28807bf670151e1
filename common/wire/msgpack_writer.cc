#include "common/wire/msgpack_writer.h"

#include <bit>

#include "common/base/check.h"

#define MSGPACK_NO_BOOST
#include <msgpack.hpp>

namespace foretoken::wire {
namespace {

struct Sink {
  Bytes& out;
  void write(const char* data, std::size_t size) { out.append(data, size); }
};

std::uint32_t size32(std::size_t size) {
  FORETOKEN_CHECK(size <= UINT32_MAX);
  return static_cast<std::uint32_t>(size);
}

}  // namespace

// A packer holds nothing but its stream, so making one per call costs nothing.
#define FORETOKEN_PACK(call)          \
  Sink sink{out_};                    \
  msgpack::packer<Sink> packer(sink); \
  packer.call

void MsgpackWriter::nil() { FORETOKEN_PACK(pack_nil()); }
void MsgpackWriter::boolean(bool value) { FORETOKEN_PACK(pack(value)); }
void MsgpackWriter::uint(std::uint64_t value) { FORETOKEN_PACK(pack_uint64(value)); }
void MsgpackWriter::integer(std::int64_t value) { FORETOKEN_PACK(pack_int64(value)); }
// By hand: msgpack-cxx writes a float that happens to be whole as an integer, and a field has one
// type.
void MsgpackWriter::float32(float value) { put('\xca', std::bit_cast<std::uint32_t>(value), 4); }
void MsgpackWriter::float64(double value) { put('\xcb', std::bit_cast<std::uint64_t>(value), 8); }
void MsgpackWriter::put(char marker, std::uint64_t bits, int bytes) {
  out_.push_back(marker);
  for (int i = bytes - 1; i >= 0; --i) out_.push_back(static_cast<char>(bits >> (8 * i)));
}
void MsgpackWriter::str(std::string_view value) {
  FORETOKEN_PACK(pack_str(size32(value.size())));
  packer.pack_str_body(value.data(), size32(value.size()));
}
void MsgpackWriter::bin(std::string_view value) {
  FORETOKEN_PACK(pack_bin(size32(value.size())));
  packer.pack_bin_body(value.data(), size32(value.size()));
}
void MsgpackWriter::array(std::size_t size) { FORETOKEN_PACK(pack_array(size32(size))); }
void MsgpackWriter::map(std::size_t size) { FORETOKEN_PACK(pack_map(size32(size))); }

#undef FORETOKEN_PACK

}  // namespace foretoken::wire
