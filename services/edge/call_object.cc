#include "services/edge/call_object.h"

#include <algorithm>
#include <utility>

#include "common/base/json.h"

namespace foretoken::edge {
namespace {

constexpr std::size_t kMaxOpenBrackets = 128;

std::optional<std::string> text_in(const std::string& json) {
  const auto value = parse_json(json);
  if (!value.ok() || !value->is_string()) return std::nullopt;
  return value->get<std::string>();
}

// Llama says parameters.
bool is_arguments(std::string_view key) { return key == "arguments" || key == "parameters"; }

}  // namespace

JsonValueEnd::Says JsonValueEnd::feed_string(char byte) {
  if (escaped_) {
    escaped_ = false;
  } else if (byte == '\\') {
    escaped_ = true;
  } else if (byte == '"') {
    in_string_ = false;
    return open_.empty() ? Says::kLast : Says::kInside;
  }
  return Says::kInside;
}

std::string JsonValueEnd::as_json(char byte) const {
  constexpr std::string_view kControls = "\b\t\n\f\r";
  constexpr std::string_view kLetters = "btnfr";
  constexpr std::string_view kDigits = "0123456789abcdef";
  const auto code = static_cast<unsigned char>(byte);
  if (!in_string_ || code >= 0x20) return std::string(1, byte);
  // A backslash before it has left already and begins the escape.
  std::string escape = escaped_ ? "" : "\\";
  if (const auto at = kControls.find(byte); at != std::string_view::npos)
    return escape += kLetters[at];
  escape += "u00";
  escape += kDigits[code / 16U];
  return escape += kDigits[code % 16U];
}

std::string escape_controls(std::string_view text) {
  const std::size_t begin = std::min(text.find_first_not_of(" \n\t\r"), text.size());
  std::string json(text.substr(0, begin));
  JsonValueEnd value;
  for (const char byte : text.substr(begin)) {
    json += value.as_json(byte);
    value.feed(byte);
  }
  return json;
}

JsonValueEnd::Says JsonValueEnd::feed(char byte) {
  if (in_string_) return feed_string(byte);
  if (in_scalar_) {
    if (is_json_space(byte) || byte == ',' || byte == '}' || byte == ']') return Says::kBehind;
    return byte == '"' || byte == '{' || byte == '[' ? Says::kBroken : Says::kInside;
  }
  switch (byte) {
    case '"':
      in_string_ = true;
      return Says::kInside;
    case '{':
    case '[':
      if (open_.size() == kMaxOpenBrackets) return Says::kBroken;
      open_ += byte == '{' ? '}' : ']';
      return Says::kInside;
    case '}':
    case ']':
      if (open_.empty() || open_.back() != byte) return Says::kBroken;
      open_.pop_back();
      return open_.empty() ? Says::kLast : Says::kInside;
    default:
      if (open_.empty()) in_scalar_ = true;
      return Says::kInside;
  }
}

CallObject::State CallObject::state() const {
  return at_ == At::kWhole ? State::kWhole : at_ == At::kBroken ? State::kBroken : State::kOpen;
}

std::string CallObject::take_arguments() { return std::exchange(arguments_, {}); }

CallObject::State CallObject::feed(char byte) {
  const bool inside = at_ == At::kInKey || at_ == At::kInValue;
  if (!inside && is_json_space(byte)) return state();
  switch (at_) {
    case At::kStart:
      at_ = byte == '{' ? At::kFirstKey : At::kBroken;
      break;
    case At::kFirstKey:
    case At::kKey:
      if (byte == '"') {
        at_ = At::kInKey;
        value_ = {};
        raw_.assign(1, byte);
        value_.feed(byte);
      } else {
        at_ = byte == '}' && at_ == At::kFirstKey ? At::kWhole : At::kBroken;
      }
      break;
    case At::kInKey:
      raw_ += byte;
      if (value_.feed(byte) == JsonValueEnd::Says::kLast) {
        const auto key = text_in(raw_);
        key_ = key.value_or("");
        at_ = key ? At::kColon : At::kBroken;
      }
      break;
    case At::kColon:
      at_ = byte == ':' ? At::kValue : At::kBroken;
      break;
    case At::kValue:
      value_ = {};
      raw_.clear();
      at_ = At::kInValue;
      streams_ = byte == '{' && !has_arguments_ && is_arguments(key_);
      if (streams_) has_arguments_ = true;
      feed_value(byte);
      break;
    case At::kInValue:
      feed_value(byte);
      break;
    case At::kNext:
      at_ = byte == ',' ? At::kKey : byte == '}' ? At::kWhole : At::kBroken;
      break;
    case At::kWhole:
    case At::kBroken:
      break;
  }
  return state();
}

void CallObject::feed_value(char byte) {
  const std::string json = is_arguments(key_) ? value_.as_json(byte) : std::string(1, byte);
  const auto says = value_.feed(byte);
  if (says == JsonValueEnd::Says::kBroken) {
    at_ = At::kBroken;
  } else if (says == JsonValueEnd::Says::kBehind) {
    end_value();
    if (at_ != At::kBroken) feed(byte);
  } else {
    (streams_ ? arguments_ : raw_) += json;
    if (says == JsonValueEnd::Says::kLast) end_value();
  }
}

void CallObject::end_value() {
  at_ = At::kNext;
  if (streams_) {
    streams_ = false;
    are_whole_ = true;
  } else if (key_ == "name") {
    if (!name_) name_ = text_in(raw_);
    if (!name_) at_ = At::kBroken;
  } else if (is_arguments(key_) && !has_arguments_ && raw_ != "null") {
    // Some models write the object as a text. Its strings are strings within a string.
    std::string text = escape_controls(text_in(raw_).value_or(""));
    const auto object = parse_json(text);
    if (!object.ok() || !object->is_object()) {
      at_ = At::kBroken;
      return;
    }
    arguments_ = std::move(text);
    has_arguments_ = are_whole_ = true;
  }
}

}  // namespace foretoken::edge
