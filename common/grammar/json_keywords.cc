#include "common/grammar/json_keywords.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

namespace foretoken {
namespace {

using enum KeywordForm;
using enum KeywordUse;

constexpr KeywordRow kKeywords[] = {
    {"$ref", kString, kReference},
    {"allOf", kSchemas, kAll},
    {"anyOf", kSchemas, kChoice},
    {"oneOf", kSchemas, kChoice},
    {"type", kTypes, kConstraint},
    {"enum", kValues, kConstraint},
    {"const", kAnything, kConstraint},
    {"properties", kSchemaMap, kConstraint, kJsonObject},
    {"required", kStrings, kConstraint, kJsonObject},
    {"additionalProperties", kSchema, kConstraint, kJsonObject},
    {"minProperties", kCount, kConstraint, kJsonObject},
    {"maxProperties", kCount, kConstraint, kJsonObject},
    {"prefixItems", kSchemas, kConstraint, kJsonArray},
    {"items", kItems, kConstraint, kJsonArray},
    {"additionalItems", kSchema, kConstraint, kJsonArray},
    {"minItems", kCount, kConstraint, kJsonArray},
    {"maxItems", kCount, kConstraint, kJsonArray},
    {"minLength", kCount, kConstraint, kJsonString},
    {"maxLength", kCount, kConstraint, kJsonString},
    {"pattern", kString, kConstraint, kJsonString},
    {"format", kString, kConstraint, kJsonString},
    {"minimum", kNumber, kConstraint, kJsonNumber},
    {"maximum", kNumber, kConstraint, kJsonNumber},
    {"exclusiveMinimum", kNumber, kConstraint, kJsonNumber},
    {"exclusiveMaximum", kNumber, kConstraint, kJsonNumber},
    {"not", kAnything, kRefused},
    {"if", kAnything, kRefused},
    {"$dynamicRef", kAnything, kRefused},
    {"$recursiveRef", kAnything, kRefused},
    {"multipleOf", kNumber, kRefused, kJsonNumber},
    {"uniqueItems", kBoolean, kRefused, kJsonArray},
    {"contains", kAnything, kRefused, kJsonArray},
    {"unevaluatedItems", kAnything, kRefused, kJsonArray},
    {"propertyNames", kAnything, kRefused, kJsonObject},
    {"patternProperties", kObject, kRefused, kJsonObject},
    {"dependencies", kObject, kRefused, kJsonObject},
    {"dependentRequired", kObject, kRefused, kJsonObject},
    {"dependentSchemas", kObject, kRefused, kJsonObject},
    {"unevaluatedProperties", kAnything, kRefused, kJsonObject},
};

struct TypeName {
  std::string_view name;
  unsigned types;
};
constexpr TypeName kTypeNames[] = {{"null", kJsonNull},       {"boolean", kJsonBoolean},
                                   {"integer", kJsonInteger}, {"number", kJsonNumber},
                                   {"string", kJsonString},   {"array", kJsonArray},
                                   {"object", kJsonObject}};

bool is_schema(const OrderedJson& value) { return value.is_object() || value.is_boolean(); }

template <class Predicate>
bool is_list_of(const OrderedJson& value, Predicate is_one) {
  return value.is_array() && std::all_of(value.begin(), value.end(), is_one);
}

bool is_string(const OrderedJson& value) { return value.is_string(); }

bool is_type_name(const OrderedJson& value) {
  return value.is_string() && type_of_name(value.get_ref<const std::string&>()) != 0;
}

bool is_name_of_string(const OrderedJson& value) { return value == "string"; }

// Whether each string is valid under it: `type` allows strings, and all else is an annotation.
bool allows_each_string(const OrderedJson& schema) {
  if (!schema.is_object()) return schema == true;
  for (const auto& [name, value] : schema.items()) {
    const KeywordRow* row = find_keyword(name);
    if (row == nullptr) continue;
    if (name != "type" || form_problem(row->form, value) != nullptr) return false;
    const bool has_string = is_name_of_string(value) ||
                            (value.is_array() && std::ranges::any_of(value, is_name_of_string));
    if (!has_string) return false;
  }
  return true;
}

constexpr const char* kExactNumber = "must be a number, and one of 64 bits if it is whole";

bool is_count(const OrderedJson& value) {
  if (value.is_number_unsigned()) return true;
  if (!value.is_number_float()) return false;
  const double count = value.get<double>();
  return count >= 0 && count < 1e15 && count == std::floor(count);
}

}  // namespace

bool is_exact_number(const OrderedJson& value) {
  if (!value.is_number_float()) return value.is_number();
  const double magnitude = std::fabs(value.get<double>());
  return magnitude < 0x1p63 || magnitude >= 1e20;
}

const KeywordRow* find_keyword(std::string_view name) {
  for (const KeywordRow& row : kKeywords)
    if (row.name == name) return &row;
  return nullptr;
}

const char* form_problem(KeywordForm form, const OrderedJson& value) {
  const auto unless = [](bool right, const char* what) { return right ? nullptr : what; };
  switch (form) {
    case kAnything:
      return nullptr;
    case kSchema:
      return unless(is_schema(value), "must be a schema");
    case kSchemas:
      return unless(is_list_of(value, is_schema), "must be a list of schemas");
    case kSchemaMap:
      return unless(value.is_object() && std::all_of(value.begin(), value.end(), is_schema),
                    "must be an object of schemas");
    case kItems:
      return unless(is_schema(value) || is_list_of(value, is_schema),
                    "must be a schema or a list of schemas");
    case kTypes:
      return unless(is_type_name(value) || is_list_of(value, is_type_name),
                    "must be the name of a type or a list of such names");
    case kValues:
      return unless(value.is_array(), "must be a list of values");
    case kCount:
      return unless(is_count(value), "must be a whole number from 0");
    case kNumber:
      return unless(is_exact_number(value), kExactNumber);
    case kBoolean:
      return unless(value.is_boolean(), "must be true or false");
    case kString:
      return unless(value.is_string(), "must be a string");
    case kStrings:
      return unless(is_list_of(value, is_string), "must be a list of strings");
    case kObject:
      return unless(value.is_object(), "must be an object");
  }
  return nullptr;
}

bool asks_for_nothing(const KeywordRow& row, const OrderedJson& value) {
  if (row.name == "uniqueItems") return !value.get<bool>();
  if (row.form == kObject) return value.empty();                      // nothing depends, no pattern
  if (row.name == "propertyNames") return allows_each_string(value);  // a key is a string
  if (row.name.starts_with("unevaluated"))
    return value == true || (value.is_object() && value.empty());
  return false;
}

unsigned type_of_name(std::string_view name) {
  for (const TypeName& type : kTypeNames)
    if (type.name == name) return type.types;
  return 0;
}

unsigned type_of_value(const OrderedJson& value) {
  switch (value.type()) {
    case OrderedJson::value_t::null:
      return kJsonNull;
    case OrderedJson::value_t::boolean:
      return kJsonBoolean;
    case OrderedJson::value_t::string:
      return kJsonString;
    case OrderedJson::value_t::array:
      return kJsonArray;
    case OrderedJson::value_t::object:
      return kJsonObject;
    case OrderedJson::value_t::number_float: {
      const double number = value.get<double>();
      return number == std::floor(number) ? kJsonInteger : kJsonFraction;
    }
    default:
      return kJsonInteger;
  }
}

}  // namespace foretoken
