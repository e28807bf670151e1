#include "common/grammar/text_cursor.h"

#include <algorithm>

namespace foretoken {
namespace {

constexpr std::string_view kDecimalDigits = "0123456789";
constexpr std::string_view kCursorHexDigits = "0123456789ABCDEFabcdef";

}  // namespace

std::optional<char32_t> TextCursor::take_hex(std::size_t n_digits) {
  const std::string_view digits = rest().substr(0, n_digits);
  if (digits.size() < n_digits ||
      digits.find_first_not_of(kCursorHexDigits) != std::string_view::npos)
    return std::nullopt;
  at_ += n_digits;
  char32_t number = 0;
  for (const char digit : digits) {
    const std::size_t index = kCursorHexDigits.find(digit);
    number = number * 16 + static_cast<char32_t>(index < 16 ? index : index - 6);
  }
  return number;
}

std::optional<std::uint32_t> TextCursor::take_number(std::uint32_t most) {
  const std::string_view digits = take_while(kDecimalDigits);
  if (digits.empty()) return std::nullopt;
  std::uint64_t number = 0;
  for (const char digit : digits)
    number = std::min<std::uint64_t>(number * 10 + static_cast<unsigned>(digit - '0'),
                                     std::uint64_t{most} + 1);
  return static_cast<std::uint32_t>(number);
}

void TextCursor::fail_at(std::size_t place, std::string message) {
  if (!failure_) failure_ = Failure{place, std::move(message)};
  at_ = text_.size();
}

}  // namespace foretoken
