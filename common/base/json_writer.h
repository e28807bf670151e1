// Writes JSON without the JSON library, in headers alone: bench/gpu is built on GPU machines that
// have no such library (FORETOKEN_KERNELS_ONLY). All else writes through common/base/json.h. Keys
// and texts are UTF-8. Commas, quotes and escapes come from here; pairing begin and end is the
// caller's. ", " and ": " stand between values, as scripts that read a line with sed expect.
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace foretoken {

class JsonWriter {
 public:
  enum class Layout : std::uint8_t { kOneLine, kLineEach };  // of what is in it

  JsonWriter& begin_object(Layout layout = Layout::kOneLine) { return open('{', layout); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array(Layout layout = Layout::kOneLine) { return open('[', layout); }
  JsonWriter& end_array() { return close(']'); }

  JsonWriter& key(std::string_view name) {
    value(name);
    text_ += ": ";
    state_ = State::kAfterKey;
    return *this;
  }
  JsonWriter& value(std::string_view text) {
    separate();
    text_ += '"';
    for (const char c : text) {
      if (c == '"' || c == '\\') text_ += '\\';
      if (static_cast<unsigned char>(c) >= 0x20) {
        text_ += c;
        continue;
      }
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c));
      text_ += escape;
    }
    text_ += '"';
    return *this;
  }
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  JsonWriter& value(bool is) { return bare(is ? "true" : "false"); }
  template <std::integral T>
  JsonWriter& value(T n) {
    return bare(std::to_string(n).c_str());
  }
  // Null if it is not finite: JSON has no such number.
  JsonWriter& value(double x, int decimals) {
    char digits[352];  // the greatest double has 309 before the point
    std::snprintf(digits, sizeof digits, "%.*f", decimals, x);
    return bare(std::isfinite(x) ? digits : "null");
  }
  template <class... Value>
  JsonWriter& field(std::string_view name, const Value&... is) {
    return key(name).value(is...);
  }

  const std::string& text() const { return text_; }

 private:
  enum class State : std::uint8_t { kFirst, kAfterKey, kAfterValue };

  void separate() {
    const bool line = !open_.empty() && open_.back() == Layout::kLineEach;
    if (state_ == State::kAfterValue) text_ += line ? "," : ", ";
    if (line && state_ != State::kAfterKey) text_ += "\n  ";
    state_ = State::kAfterValue;
  }
  JsonWriter& bare(const char* text) {
    separate();
    text_ += text;
    return *this;
  }
  JsonWriter& open(char bracket, Layout layout) {
    separate();
    text_ += bracket;
    open_.push_back(layout);
    state_ = State::kFirst;
    return *this;
  }
  JsonWriter& close(char bracket) {
    text_ += bracket;
    open_.pop_back();
    state_ = State::kAfterValue;
    return *this;
  }

  std::string text_;
  std::vector<Layout> open_;
  State state_ = State::kFirst;
};

}  // namespace foretoken
