// A place in a text that a reader walks through, and the first thing that was wrong with it. Once
// something is wrong the cursor stands at the end, so that loops over the text come to theirs.
// Knows nothing of what the text means. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/utf8.h"

namespace foretoken {

class TextCursor {
 public:
  // `text` must be valid UTF-8.
  explicit TextCursor(std::string_view text) : text_(text) {}

  bool at_end() const { return at_ == text_.size(); }
  std::size_t at() const { return at_; }
  std::string_view rest() const { return text_.substr(at_); }
  bool next_is(std::string_view what) const { return rest().starts_with(what); }
  bool next_is_one_of(std::string_view bytes) const {
    return !at_end() && bytes.find(text_[at_]) != std::string_view::npos;
  }
  bool take(std::string_view what) {
    if (!next_is(what)) return false;
    at_ += what.size();
    return true;
  }
  void skip(std::size_t n_bytes) { at_ += n_bytes; }
  std::string_view take_while(std::string_view bytes) {
    const std::string_view found = rest().substr(0, rest().find_first_not_of(bytes));
    at_ += found.size();
    return found;
  }
  char32_t take_character() {  // not at the end
    const auto [character, length] = utf8::code_point_at(text_, at_);
    at_ += length;
    return character;
  }
  // Exactly so many hexadecimal digits; nothing, if they are not there.
  std::optional<char32_t> take_hex(std::size_t n_digits);
  // A decimal number; numbers beyond `most` become most + 1. Nothing, if there is no digit.
  std::optional<std::uint32_t> take_number(std::uint32_t most);

  void fail(std::string message) { fail_at(at_, std::move(message)); }
  void fail_at(std::size_t place, std::string message);
  bool failed() const { return failure_.has_value(); }
  struct Failure {
    std::size_t place = 0;
    std::string message;
  };
  const Failure& failure() const { return *failure_; }

 private:
  std::string_view text_;
  std::size_t at_ = 0;
  std::optional<Failure> failure_;
};

}  // namespace foretoken
