#include "common/wire/msgpack_reader.h"

#include <bit>
#include <cmath>

namespace foretoken::wire {

std::string_view name_of(MsgpackKind kind) {
  switch (kind) {
    case MsgpackKind::kNil:
      return "nil";
    case MsgpackKind::kBool:
      return "a boolean";
    case MsgpackKind::kInteger:
      return "an integer";
    case MsgpackKind::kFloat:
      return "a float";
    case MsgpackKind::kStr:
      return "a string";
    case MsgpackKind::kBin:
      return "binary data";
    case MsgpackKind::kArray:
      return "an array";
    case MsgpackKind::kMap:
      return "a map";
    case MsgpackKind::kEnd:
      return "the end of the data";
    case MsgpackKind::kBad:
      return "a type msgpack does not have here";
  }
  return "?";
}

MsgpackKind MsgpackReader::peek() const {
  if (rest_.empty()) return MsgpackKind::kEnd;
  const auto b = static_cast<std::uint8_t>(rest_[0]);
  if (b <= 0x7f || b >= 0xe0 || (b >= 0xcc && b <= 0xd3)) return MsgpackKind::kInteger;
  if (b <= 0x8f || b == 0xde || b == 0xdf) return MsgpackKind::kMap;
  if (b <= 0x9f || b == 0xdc || b == 0xdd) return MsgpackKind::kArray;
  if (b <= 0xbf || (b >= 0xd9 && b <= 0xdb)) return MsgpackKind::kStr;
  if (b == 0xc0) return MsgpackKind::kNil;
  if (b == 0xc2 || b == 0xc3) return MsgpackKind::kBool;
  if (b >= 0xc4 && b <= 0xc6) return MsgpackKind::kBin;
  if (b == 0xca || b == 0xcb) return MsgpackKind::kFloat;
  return MsgpackKind::kBad;  // 0xc1 and ext
}

bool MsgpackReader::fail(std::string sentence) {
  if (error_.empty()) error_ = std::move(sentence);
  return false;
}

bool MsgpackReader::expected(const char* what) {
  return fail(std::string("must be ") + what + "; found " + std::string(name_of(peek())));
}

bool MsgpackReader::take(std::size_t size, std::string_view& bytes) {
  if (failed()) return false;
  if (size > rest_.size())
    return fail("announces " + std::to_string(size) + " bytes where " +
                std::to_string(rest_.size()) + " remain");
  bytes = rest_.substr(0, size);
  rest_.remove_prefix(size);
  return true;
}

bool MsgpackReader::big_endian(std::size_t size, std::uint64_t& value) {
  std::string_view bytes;
  if (!take(size, bytes)) return false;
  value = 0;
  for (const char byte : bytes) value = value << 8 | static_cast<std::uint8_t>(byte);
  return true;
}

bool MsgpackReader::nil() {
  std::string_view first;
  if (failed() || peek() != MsgpackKind::kNil) return failed() ? false : expected("nil");
  return take(1, first);
}

bool MsgpackReader::boolean(bool& value) {
  std::string_view first;
  if (failed() || peek() != MsgpackKind::kBool) return failed() ? false : expected("a boolean");
  if (!take(1, first)) return false;
  value = static_cast<std::uint8_t>(first[0]) == 0xc3;
  return true;
}

bool MsgpackReader::integer(MsgpackInteger& value) {
  std::string_view first;
  if (failed() || peek() != MsgpackKind::kInteger) return failed() ? false : expected("an integer");
  if (!take(1, first)) return false;
  const auto b = static_cast<std::uint8_t>(first[0]);
  if (b <= 0x7f) return value = {false, b}, true;
  if (b >= 0xe0) return value = {true, 256u - b}, true;
  std::uint64_t raw = 0;
  const std::size_t size = std::size_t{1} << ((b - 0xcc) & 3);
  if (!big_endian(size, raw)) return false;
  if (b <= 0xcf) return value = {false, raw}, true;
  const std::uint64_t sign = std::uint64_t{1} << (8 * size - 1);
  if ((raw & sign) == 0) return value = {false, raw}, true;
  // Two's complement of the declared width; ~0 >> (64 - 8 size) masks it to that width.
  value = {true, (~raw + 1) & (~std::uint64_t{0} >> (64 - 8 * size))};
  if (size == 8 && value.magnitude == 0) value.magnitude = sign;
  return true;
}

bool MsgpackReader::uint(std::uint64_t& value, std::uint64_t most) {
  MsgpackInteger read;
  if (!integer(read)) return false;
  if (read.negative || read.magnitude > most)
    return fail("is " + std::string(read.negative ? "-" : "") + std::to_string(read.magnitude) +
                "; it must be from 0 to " + std::to_string(most));
  value = read.magnitude;
  return true;
}

bool MsgpackReader::sint(std::int64_t& value, std::int64_t least, std::int64_t most) {
  MsgpackInteger read;
  if (!integer(read)) return false;
  const auto half = std::uint64_t{1} << 63;
  const bool fits = read.negative ? read.magnitude <= half : read.magnitude < half;
  const auto as_signed =
      static_cast<std::int64_t>(read.negative ? ~read.magnitude + 1 : read.magnitude);
  if (!fits || as_signed < least || as_signed > most)
    return fail("is " + std::string(read.negative ? "-" : "") + std::to_string(read.magnitude) +
                "; it must be from " + std::to_string(least) + " to " + std::to_string(most));
  value = as_signed;
  return true;
}

bool MsgpackReader::any_real(double& value) {
  std::string_view first;
  if (failed() || peek() != MsgpackKind::kFloat) return failed() ? false : expected("a float");
  if (!take(1, first)) return false;
  const bool single = static_cast<std::uint8_t>(first[0]) == 0xca;
  std::uint64_t raw = 0;
  if (!big_endian(single ? 4 : 8, raw)) return false;
  value = single ? static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(raw)))
                 : std::bit_cast<double>(raw);
  return true;
}

bool MsgpackReader::real(double& value) {
  if (!any_real(value)) return false;
  if (!std::isfinite(value)) return fail("is not a finite number");
  return true;
}

bool MsgpackReader::number(double& value) {
  if (failed()) return false;
  if (peek() == MsgpackKind::kFloat) return real(value);
  if (peek() != MsgpackKind::kInteger) return expected("a number");
  MsgpackInteger read;
  if (!integer(read)) return false;
  value = static_cast<double>(read.magnitude);
  if (read.negative) value = -value;
  return true;
}

// Length in 1, 2 or 4 bytes after `first8`, then so many bytes.
bool MsgpackReader::sized(std::uint8_t first8, std::size_t most, std::string_view& value) {
  std::string_view first;
  if (!take(1, first)) return false;
  std::uint64_t size = 0;
  if (!big_endian(std::size_t{1} << (static_cast<std::uint8_t>(first[0]) - first8), size))
    return false;
  if (size > most)
    return fail("has " + std::to_string(size) + " bytes; the limit is " + std::to_string(most));
  return take(size, value);
}

bool MsgpackReader::str(std::string_view& value, std::size_t most) {
  if (failed() || peek() != MsgpackKind::kStr) return failed() ? false : expected("a string");
  const auto b = static_cast<std::uint8_t>(rest_[0]);
  if (b >= 0xd9) return sized(0xd9, most, value);
  rest_.remove_prefix(1);
  return take(b & 0x1f, value);
}

bool MsgpackReader::bin(std::string_view& value, std::size_t most) {
  if (failed() || peek() != MsgpackKind::kBin) return failed() ? false : expected("binary data");
  return sized(0xc4, most, value);
}

bool MsgpackReader::enter(std::size_t size,
                          std::size_t most,
                          std::size_t bytes_each,
                          const char* what) {
  if (size > most)
    return fail(std::string("is ") + what + " of " + std::to_string(size) + "; the limit is " +
                std::to_string(most));
  if (size > rest_.size() / bytes_each)
    return fail(std::string("is ") + what + " that announces " + std::to_string(size) +
                " elements where " + std::to_string(rest_.size()) + " bytes remain");
  if (++depth_ > kMaxDepth) return fail("is nested deeper than " + std::to_string(kMaxDepth));
  return true;
}

bool MsgpackReader::array(std::size_t& size, std::size_t most) {
  if (failed() || peek() != MsgpackKind::kArray) return failed() ? false : expected("an array");
  const auto b = static_cast<std::uint8_t>(rest_[0]);
  rest_.remove_prefix(1);
  std::uint64_t n = b & 0x0f;
  if (b >= 0xdc && !big_endian(b == 0xdc ? 2 : 4, n)) return false;
  size = n;
  return enter(size, most, 1, "an array");
}

bool MsgpackReader::map(std::size_t& size, std::size_t most) {
  if (failed() || peek() != MsgpackKind::kMap) return failed() ? false : expected("a map");
  const auto b = static_cast<std::uint8_t>(rest_[0]);
  rest_.remove_prefix(1);
  std::uint64_t n = b & 0x0f;
  if (b >= 0xde && !big_endian(b == 0xde ? 2 : 4, n)) return false;
  size = n;
  return enter(size, most, 2, "a map");
}

bool MsgpackReader::skip() {
  if (failed()) return false;
  switch (peek()) {
    case MsgpackKind::kNil:
      return nil();
    case MsgpackKind::kBool: {
      bool value;
      return boolean(value);
    }
    case MsgpackKind::kInteger: {
      MsgpackInteger value;
      return integer(value);
    }
    case MsgpackKind::kFloat: {
      double value;
      return any_real(value);
    }
    case MsgpackKind::kStr: {
      std::string_view value;
      return str(value, rest_.size());
    }
    case MsgpackKind::kBin: {
      std::string_view value;
      return bin(value, rest_.size());
    }
    case MsgpackKind::kArray:
    case MsgpackKind::kMap: {
      std::size_t size = 0;
      const bool is_map = peek() == MsgpackKind::kMap;
      if (!(is_map ? map(size, rest_.size()) : array(size, rest_.size()))) return false;
      for (std::size_t i = 0; i < (is_map ? 2 * size : size); ++i)
        if (!skip()) return false;
      leave();
      return true;
    }
    case MsgpackKind::kEnd:
    case MsgpackKind::kBad:
      return expected("a value");
  }
  return false;
}

bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<std::uint8_t>(text[i]);
    if (lead < 0x80) {
      ++i;
      continue;
    }
    const std::size_t size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc2 || lead > 0xf4 || text.size() - i < size) return false;
    std::uint32_t code = lead & (0xffu >> (size + 1));
    for (std::size_t k = 1; k < size; ++k) {
      const auto byte = static_cast<std::uint8_t>(text[i + k]);
      if ((byte & 0xc0) != 0x80) return false;
      code = code << 6 | (byte & 0x3f);
    }
    constexpr std::uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
    if (code < kSmallest[size] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
      return false;
    i += size;
  }
  return true;
}

}  // namespace foretoken::wire
