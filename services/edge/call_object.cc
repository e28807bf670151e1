#include "services/edge/call_object.h"

#include <string_view>
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
      // Llama says parameters.
      streams_ = byte == '{' && !has_arguments_ && (key_ == "arguments" || key_ == "parameters");
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
  const auto says = value_.feed(byte);
  if (says == JsonValueEnd::Says::kBroken) {
    at_ = At::kBroken;
  } else if (says == JsonValueEnd::Says::kBehind) {
    end_value();
    if (at_ != At::kBroken) feed(byte);
  } else {
    (streams_ ? arguments_ : raw_) += byte;
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
  } else if ((key_ == "arguments" || key_ == "parameters") && !has_arguments_ && raw_ != "null") {
    // Some models write the object as a text.
    const auto text = text_in(raw_);
    const auto object = text ? parse_json(*text) : Result<Json>(Json());
    if (!object.ok() || !object->is_object()) {
      at_ = At::kBroken;
      return;
    }
    arguments_ = *text;
    has_arguments_ = are_whole_ = true;
  }
}

}  // namespace foretoken::edge
