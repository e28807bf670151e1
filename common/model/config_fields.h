// The members of a config.json by name, each with the range that it must be in. Every complaint
// names file, field, expectation and finding.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "common/base/json.h"
#include "common/base/result.h"

namespace foretoken {

// Positions above 2^24 are no longer exact in float.
inline constexpr std::int64_t kMaxPositions = 1 << 24;

// One JSON object of one file, asked for fields by name. Every complaint names file, field,
// expectation and finding. A field that is null counts as absent, as Python's None does.
class ConfigFields {
 public:
  ConfigFields(const Json& object, std::string file, std::string prefix = {})
      : object_(object), file_(std::move(file)), prefix_(std::move(prefix)) {}

  const Json* find(const char* field) const {
    const auto found = object_.find(field);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  bool has(const char* field) const { return find(field) != nullptr; }

  [[noreturn]] void refuse(ErrorCode code, const char* field, const std::string& sentence) const {
    throw FatalError(code, file_ + ": " + prefix_ + field + " " + sentence);
  }
  [[noreturn]] void expected(const char* field, const std::string& expectation) const {
    const Json* found = find(field);
    std::string finding = found == nullptr ? "it is missing" : "found " + to_text(*found);
    if (finding.size() > 120) finding = finding.substr(0, 120) + "…";
    refuse(ErrorCode::kMalformed, field, "must be " + expectation + "; " + finding);
  }

  std::int64_t integer(const char* field, std::int64_t low, std::int64_t high) const {
    const Json* value = find(field);
    const std::string range =
        "a whole number from " + std::to_string(low) + " to " + std::to_string(high);
    if (value == nullptr || !value->is_number_integer()) expected(field, range);
    // An unsigned above 2^63 would turn negative.
    if (value->is_number_unsigned() &&
        value->get<std::uint64_t>() > static_cast<std::uint64_t>(high))
      expected(field, range);
    const auto number = value->get<std::int64_t>();
    if (number < low || number > high) expected(field, range);
    return number;
  }
  std::int64_t integer_or(const char* field,
                          std::int64_t low,
                          std::int64_t high,
                          std::int64_t otherwise) const {
    return has(field) ? integer(field, low, high) : otherwise;
  }
  double number(const char* field, double low, double high) const {
    const Json* value = find(field);
    const std::string range = "a number from " + Json(low).dump() + " to " + Json(high).dump();
    if (value == nullptr || !value->is_number()) expected(field, range);
    const auto number = value->get<double>();
    if (!(number >= low && number <= high)) expected(field, range);
    return number;
  }
  double number_or(const char* field, double low, double high, double otherwise) const {
    return has(field) ? number(field, low, high) : otherwise;
  }
  bool flag_or(const char* field, bool otherwise) const {
    const Json* value = find(field);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) expected(field, "true or false");
    return value->get<bool>();
  }
  std::string text_or(const char* field, std::string otherwise) const {
    const Json* value = find(field);
    if (value == nullptr) return otherwise;
    if (!value->is_string()) expected(field, "a string");
    return value->get<std::string>();
  }

  const Json& object() const { return object_; }
  const std::string& file() const { return file_; }

 private:
  const Json& object_;
  std::string file_;
  std::string prefix_;
};

}  // namespace foretoken
