#include "services/edge/body_fields.h"

#include <algorithm>

namespace foretoken::edge {
namespace {

// What a client library sends for "not wanted".
bool says_nothing(const Json& value) {
  return value.is_null() || value == false ||
         ((value.is_array() || value.is_object() || value.is_string()) && value.empty());
}

}  // namespace

Result<BodyOutcome> sort_fields(const Json& body, std::span<const BodyField> fields, bool strict) {
  BodyOutcome outcome;
  for (const auto& [name, value] : body.items()) {
    const auto field =
        std::find_if(fields.begin(), fields.end(),
                     [&, &name = name](const BodyField& each) { return each.name == name; });
    if (field == fields.end()) {
      if (strict) return Error{ErrorCode::kUnsupportedParameter, "unknown field " + name, name};
      outcome.ignored.push_back(name);
      continue;
    }
    if (value.is_null() || (field->key == "seed" && is_no_seed(value))) continue;
    if (field->use == FieldUse::kRefused && !says_nothing(value))
      return Error{
          ErrorCode::kUnsupportedParameter,
          name + " is not supported" + (field->note.empty() ? "" : ": " + std::string(field->note)),
          name};
    if (field->use == FieldUse::kIgnored) outcome.ignored.push_back(name);
    if (field->use == FieldUse::kHonoured && !field->key.empty())
      outcome.request[std::string(field->key)] = value;
  }
  return outcome;
}

bool is_no_seed(const Json& seed) {
  // 2^64 - 1 is a seed, and would be equal to -1.
  return seed.is_null() || (seed.is_number_integer() && !seed.is_number_unsigned() && seed == -1);
}

std::vector<BodyField> joined_fields(std::span<const BodyField> own,
                                     std::span<const BodyField> common) {
  std::vector<BodyField> fields(own.begin(), own.end());
  fields.insert(fields.end(), common.begin(), common.end());
  return fields;
}

std::string field_of(std::string_view key, std::span<const BodyField> fields) {
  auto field = std::find_if(fields.begin(), fields.end(),
                            [&](const BodyField& each) { return each.key == key; });
  if (field == fields.end())  // one that the endpoint reads itself
    field = std::find_if(fields.begin(), fields.end(),
                         [&](const BodyField& each) { return each.limit_key == key; });
  return std::string(field == fields.end() ? key : field->name);
}

}  // namespace foretoken::edge
