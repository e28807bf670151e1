#include "common/tokenizer/json_tree.h"

namespace foretoken {

std::string_view json_kind_name(JsonTree::Kind kind) {
  switch (kind) {
    case JsonTree::Kind::kNull:
      return "null";
    case JsonTree::Kind::kBool:
      return "a boolean";
    case JsonTree::Kind::kInteger:
      return "an integer";
    case JsonTree::Kind::kNumber:
      return "a number";
    case JsonTree::Kind::kString:
      return "a string";
    case JsonTree::Kind::kArray:
      return "an array";
    case JsonTree::Kind::kObject:
      return "an object";
  }
  return "nothing";
}

std::string printable(std::string_view text) {
  constexpr std::size_t kMost = 80;
  std::string out;
  for (const char c : text.substr(0, kMost))
    out.push_back(static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? '?' : c);
  // A cut inside a sequence would make the message itself invalid UTF-8.
  while (text.size() > kMost && !out.empty() &&
         (static_cast<unsigned char>(out.back()) & 0x80u) != 0)
    out.pop_back();
  return text.size() > kMost ? out + "…" : out;
}

Error field_error(std::string_view file,
                  std::string_view path,
                  std::string_view expected,
                  std::string_view found,
                  ErrorCode code) {
  std::string message(file);
  if (!path.empty()) message.append(": ").append(path);
  message.append(": expected ").append(expected).append(", found ").append(found);
  return Error{code, std::move(message)};
}

JsonCursor JsonCursor::operator[](std::string_view name) const {
  const JsonTree* child = value_ == nullptr ? nullptr : value_->find(name);
  return {file_, child, path_.empty() ? std::string(name) : path_ + "." + std::string(name)};
}

std::vector<JsonCursor> JsonCursor::elements() const {
  std::vector<JsonCursor> all;
  if (!is(JsonTree::Kind::kArray)) return all;
  all.reserve(value_->items.size());
  for (std::size_t i = 0; i < value_->items.size(); ++i)
    all.emplace_back(file_, &value_->items[i], path_ + "[" + std::to_string(i) + "]");
  return all;
}

Error JsonCursor::unexpected(std::string_view expected) const {
  return error(expected, value_ == nullptr ? "nothing" : json_kind_name(value_->kind));
}

Result<std::string> JsonCursor::string() const {
  if (!is(JsonTree::Kind::kString)) return unexpected("a string");
  return value_->string;
}

Result<std::int64_t> JsonCursor::integer(std::int64_t low, std::int64_t high) const {
  const std::string range =
      "an integer from " + std::to_string(low) + " to " + std::to_string(high);
  if (!is(JsonTree::Kind::kInteger)) return unexpected(range);
  if (value_->integer < low || value_->integer > high)
    return error(range, std::to_string(value_->integer));
  return value_->integer;
}

Result<bool> JsonCursor::boolean() const {
  if (!is(JsonTree::Kind::kBool)) return unexpected("true or false");
  return value_->boolean;
}

Result<bool> JsonCursor::boolean_or(bool fallback) const {
  if (!present()) return fallback;
  return boolean();
}

}  // namespace foretoken
