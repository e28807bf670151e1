// A small JSON value and a cursor that remembers where it stands, so that a refusal can name file
// and field. Holds everything of a tokenizer folder except vocabulary and merges, which never
// become such a tree (tokenizer_json.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/result.h"

namespace foretoken {

struct JsonMember;

struct JsonTree {
  enum class Kind { kNull, kBool, kInteger, kNumber, kString, kArray, kObject };
  Kind kind = Kind::kNull;
  bool boolean = false;
  std::int64_t integer = 0;
  double number = 0;
  std::string string;
  std::vector<JsonTree> items;      // of an array
  std::vector<JsonMember> members;  // of an object, no name twice

  const JsonTree* find(std::string_view name) const;
};

struct JsonMember {
  std::string name;
  JsonTree value;
};

inline const JsonTree* JsonTree::find(std::string_view name) const {
  for (const JsonMember& member : members)
    if (member.name == name) return &member.value;
  return nullptr;
}

std::string_view json_kind_name(JsonTree::Kind kind);

// "tokenizer.json: decoder.type: expected a string, found a number"
Error field_error(std::string_view file,
                  std::string_view path,
                  std::string_view expected,
                  std::string_view found,
                  ErrorCode code = ErrorCode::kMalformed);
// Text from a file, fit for a message: control characters and excess length removed.
std::string printable(std::string_view text);

// One value of a file and the way to it. `value` may be null: an absent field.
class JsonCursor {
 public:
  JsonCursor(std::string_view file, const JsonTree* value, std::string path)
      : file_(file), value_(value), path_(std::move(path)) {}

  JsonCursor operator[](std::string_view name) const;
  std::vector<JsonCursor> elements() const;  // of an array; otherwise none

  // Null counts as absent.
  bool present() const { return value_ != nullptr && value_->kind != JsonTree::Kind::kNull; }
  bool is(JsonTree::Kind kind) const { return value_ != nullptr && value_->kind == kind; }
  bool is_zero() const {
    return (is(JsonTree::Kind::kInteger) && value_->integer == 0) ||
           (is(JsonTree::Kind::kNumber) && value_->number == 0);
  }
  const JsonTree* value() const { return value_; }
  const std::string& path() const { return path_; }
  std::string_view file() const { return file_; }

  Result<std::string> string() const;
  Result<std::int64_t> integer(std::int64_t low, std::int64_t high) const;
  Result<bool> boolean() const;
  Result<bool> boolean_or(bool fallback) const;

  Error error(std::string_view expected,
              std::string_view found,
              ErrorCode code = ErrorCode::kMalformed) const {
    return field_error(file_, path_, expected, found, code);
  }
  Error unexpected(std::string_view expected) const;  // found = kind of this value

 private:
  std::string_view file_;
  const JsonTree* value_;
  std::string path_;
};

}  // namespace foretoken
