// A call of a tool that a model writes as a JSON object, {"name": ..., "arguments": {...}}, read
// byte by byte: the arguments leave as they come. Strings and brackets are followed, so that what
// stands inside of them ends nothing. Control characters that a model wrote raw in a string of the
// arguments leave as JSON escapes: clients parse the arguments. Markers around the object are the
// caller's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace foretoken::edge {

constexpr bool is_json_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

// The end of one JSON value. Brackets must match; what is between them is not judged.
class JsonValueEnd {
 public:
  enum class Says : std::uint8_t { kInside, kLast, kBehind, kBroken };

  // kLast: the byte ends the value. kBehind: it ended before this byte.
  Says feed(char byte);
  // The text of this byte as JSON, before it is fed: of a control character in a string its escape,
  // \n or \u0001; of any other byte itself.
  std::string as_json(char byte) const;
  bool is_in_string() const { return in_string_; }

 private:
  Says feed_string(char byte);

  std::string open_;  // brackets to be closed
  bool in_string_ = false;
  bool escaped_ = false;
  bool in_scalar_ = false;
};

// One JSON value whose strings may have raw control characters -> the same with their escapes. The
// rest is not judged.
std::string escape_controls(std::string_view text);

class CallObject {
 public:
  enum class State : std::uint8_t { kOpen, kWhole, kBroken };

  State feed(char byte);
  State state() const;
  // Once it is known, and a text.
  const std::optional<std::string>& name() const { return name_; }
  bool has_arguments() const { return has_arguments_; }  // they have begun
  bool arguments_are_whole() const { return are_whole_; }
  bool is_in_string() const { return value_.is_in_string() && state() == State::kOpen; }
  std::string take_arguments();  // what came of them since

 private:
  enum class At : std::uint8_t {
    kStart,
    kFirstKey,
    kKey,
    kInKey,
    kColon,
    kValue,
    kInValue,
    kNext,
    kWhole,
    kBroken
  };
  void feed_value(char byte);
  void end_value();

  At at_ = At::kStart;
  JsonValueEnd value_;
  std::string raw_;  // the key, or a value that is kept
  std::string key_;
  std::optional<std::string> name_;
  std::string arguments_;
  bool streams_ = false;  // this value is the arguments' object
  bool has_arguments_ = false;
  bool are_whole_ = false;
};

}  // namespace foretoken::edge
