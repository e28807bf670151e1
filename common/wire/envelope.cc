#include "common/wire/envelope.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace foretoken::wire {
namespace {

template <class T>
void put(Bytes& out, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i)
    out.push_back(static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i)));
}

template <class T>
T get(std::string_view bytes, std::size_t at) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i)
    value |= std::uint64_t{static_cast<std::uint8_t>(bytes[at + i])} << (8 * i);
  return static_cast<T>(value);
}

Error bad_envelope(std::string sentence) { return {ErrorCode::kMalformed, std::move(sentence)}; }

}  // namespace

Bytes pack_header(const Header& header) {
  Bytes out;
  out.reserve(kHeaderBytes);
  out.append(kMagic.data(), kMagic.size());
  put<std::uint8_t>(out, header.major);
  put<std::uint8_t>(out, header.minor);
  put<std::uint16_t>(out, static_cast<std::uint16_t>(header.type));
  put<std::uint32_t>(out, header.flags);
  put<std::uint32_t>(out, header.body_bytes);
  put<std::uint64_t>(out, header.request.high);
  put<std::uint64_t>(out, header.request.low);
  put<std::uint64_t>(out, header.sender.value);
  put<std::uint64_t>(out, header.incarnation.value);
  put<std::uint64_t>(out, header.sequence);
  return out;
}

Result<Header> read_header(std::string_view bytes) {
  if (bytes.size() != kHeaderBytes)
    return bad_envelope("header has " + std::to_string(bytes.size()) + " bytes; it must have " +
                        std::to_string(kHeaderBytes));
  if (!std::equal(kMagic.begin(), kMagic.end(), bytes.begin()))
    return bad_envelope("header does not begin with FTKN");
  Header header;
  header.major = get<std::uint8_t>(bytes, 4);
  header.minor = get<std::uint8_t>(bytes, 5);
  header.type = static_cast<MessageType>(get<std::uint16_t>(bytes, 6));
  header.flags = get<std::uint32_t>(bytes, 8);
  header.body_bytes = get<std::uint32_t>(bytes, 12);
  header.request = {get<std::uint64_t>(bytes, 16), get<std::uint64_t>(bytes, 24)};
  header.sender = {get<std::uint64_t>(bytes, 32)};
  header.incarnation = {get<std::uint64_t>(bytes, 40)};
  header.sequence = get<std::uint64_t>(bytes, 48);
  if (header.major != kVersionMajor)
    return Error{ErrorCode::kIncompatible, "peer speaks protocol " + std::to_string(header.major) +
                                               "." + std::to_string(header.minor) + "; this is " +
                                               std::to_string(kVersionMajor) + "." +
                                               std::to_string(kVersionMinor)};
  if (header.body_bytes > kMaxInternalPartBytes)
    return bad_envelope("body of " + std::to_string(header.body_bytes) +
                        " bytes announced; the limit is " + std::to_string(kMaxInternalPartBytes));
  return header;
}

}  // namespace foretoken::wire
