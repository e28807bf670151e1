#include "common/base/utf8.h"

namespace foretoken::utf8 {
namespace {

// Narrower ranges of the second byte keep out overlong forms, surrogates and values past U+10FFFF.
struct SecondByte {
  unsigned char low;
  unsigned char high;
};

constexpr SecondByte second_byte_range(unsigned char lead) {
  switch (lead) {
    case 0xE0:
      return {0xA0, 0xBF};
    case 0xED:
      return {0x80, 0x9F};
    case 0xF0:
      return {0x90, 0xBF};
    case 0xF4:
      return {0x80, 0x8F};
    default:
      return {0x80, 0xBF};
  }
}

constexpr bool leads_sequence(unsigned char byte) { return byte >= 0xC2 && byte <= 0xF4; }

constexpr unsigned char byte_at(std::string_view text, std::size_t at) {
  return static_cast<unsigned char>(text[at]);
}

}  // namespace

CodePoint code_point_at(std::string_view text, std::size_t at) {
  const unsigned char lead = byte_at(text, at);
  const std::size_t length = sequence_length(lead);
  if (length == 1 || at + length > text.size()) return {lead, 1};
  char32_t value = lead & (0x7Fu >> length);
  for (std::size_t i = 1; i < length; ++i) value = (value << 6) | (byte_at(text, at + i) & 0x3Fu);
  return {value, length};
}

CodePoint code_point_before(std::string_view text, std::size_t end) {
  std::size_t at = end - 1;
  while (at > 0 && (byte_at(text, at) & 0xC0u) == 0x80u) --at;
  return code_point_at(text, at);
}

void append(std::string& text, char32_t code_point) {
  const auto push = [&text](std::uint32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    push(code_point);
  } else if (code_point < 0x800) {
    push(0xC0u | (code_point >> 6));
    push(0x80u | (code_point & 0x3Fu));
  } else if (code_point < 0x10000) {
    push(0xE0u | (code_point >> 12));
    push(0x80u | ((code_point >> 6) & 0x3Fu));
    push(0x80u | (code_point & 0x3Fu));
  } else {
    push(0xF0u | (code_point >> 18));
    push(0x80u | ((code_point >> 12) & 0x3Fu));
    push(0x80u | ((code_point >> 6) & 0x3Fu));
    push(0x80u | (code_point & 0x3Fu));
  }
}

std::optional<std::size_t> first_invalid(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const unsigned char lead = byte_at(text, at);
    if (lead < 0x80) {
      ++at;
      continue;
    }
    if (!leads_sequence(lead)) return at;
    const std::size_t length = sequence_length(lead);
    const SecondByte range = second_byte_range(lead);
    for (std::size_t i = 1; i < length; ++i) {
      if (at + i >= text.size()) return at;
      const unsigned char byte = byte_at(text, at + i);
      if (byte < (i == 1 ? range.low : 0x80) || byte > (i == 1 ? range.high : 0xBF)) return at;
    }
    at += length;
  }
  return std::nullopt;
}

// Handles a byte that begins something new.
void LossyDecoder::start(unsigned char byte, std::string& out) {
  if (byte < 0x80) {
    out.push_back(static_cast<char>(byte));
    return;
  }
  if (!leads_sequence(byte)) {
    out.append(kReplacement);
    return;
  }
  pending_[0] = static_cast<char>(byte);
  n_pending_ = 1;
  n_needed_ = static_cast<std::uint8_t>(sequence_length(byte));
  const SecondByte range = second_byte_range(byte);
  low_ = range.low;
  high_ = range.high;
}

void LossyDecoder::push(std::string_view bytes, std::string& out) {
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (n_pending_ > 0 && (byte < low_ || byte > high_)) {
      out.append(kReplacement);  // the sequence broke off; this byte begins anew
      n_pending_ = 0;
    }
    if (n_pending_ == 0) {
      start(byte, out);
      continue;
    }
    pending_[n_pending_++] = c;
    low_ = 0x80;
    high_ = 0xBF;
    if (n_pending_ == n_needed_) {
      out.append(pending_, n_pending_);
      n_pending_ = 0;
    }
  }
}

void LossyDecoder::finish(std::string& out) {
  if (n_pending_ > 0) out.append(kReplacement);
  n_pending_ = 0;
}

std::string text_of(std::string_view bytes) {
  LossyDecoder decoder;
  std::string text;
  decoder.push(bytes, text);
  decoder.finish(text);
  return text;
}

}  // namespace foretoken::utf8
