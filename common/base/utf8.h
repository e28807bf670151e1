// UTF-8, as much of it as a tokenizer needs: finding the first bad byte, walking code points of
// text known to be valid, and turning arbitrary bytes into text the way lossy decoders do (one
// U+FFFD for each maximal broken part). Uses no tokens. Pure functions and one small value
// type; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace foretoken::utf8 {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Bytes in the sequence that starts with `lead`; 1 for anything that cannot lead.
constexpr std::size_t sequence_length(unsigned char lead) {
  return lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

// The code point at text[at], and its length in bytes. `text` must be valid and `at` on a boundary.
struct CodePoint {
  char32_t value;
  std::size_t length;
};
CodePoint code_point_at(std::string_view text, std::size_t at);
// The code point that ends just before text[end]; end > 0.
CodePoint code_point_before(std::string_view text, std::size_t end);

void append(std::string& text, char32_t code_point);

// Where the first byte stands that cannot be part of valid UTF-8 (a truncated tail counts); nothing
// if all is well.
std::optional<std::size_t> first_invalid(std::string_view text);

// Bytes in, text out. Complete sequences leave at once, an incomplete tail waits for more bytes or
// for finish().
class LossyDecoder {
 public:
  void push(std::string_view bytes, std::string& out);
  void finish(std::string& out);

 private:
  void start(unsigned char byte, std::string& out);

  char pending_[4] = {};
  std::uint8_t n_pending_ = 0;
  std::uint8_t n_needed_ = 0;  // bytes of the sequence under way
  unsigned char low_ = 0x80;   // range the next byte must be in
  unsigned char high_ = 0xBF;
};

// Bytes as text: all of them through a LossyDecoder.
std::string text_of(std::string_view bytes);

}  // namespace foretoken::utf8
