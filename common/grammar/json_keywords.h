// The keywords of JSON Schema that have a meaning here: the form of their values, and whether they
// are refused.
#pragma once

#include <cstdint>
#include <string_view>

#include "common/base/json.h"

namespace foretoken {

// A set of the types that a value can have. An integer is a number without a fraction.
enum JsonType : unsigned {
  kJsonNull = 1,
  kJsonBoolean = 2,
  kJsonInteger = 4,
  kJsonFraction = 8,
  kJsonString = 16,
  kJsonArray = 32,
  kJsonObject = 64,
  kJsonNumber = kJsonInteger | kJsonFraction,
  kJsonAny = 127,
};

enum class KeywordForm : std::uint8_t {
  kAnything,
  kSchema,
  kSchemas,
  kSchemaMap,
  kItems,
  kTypes,
  kValues,
  kCount,
  kNumber,
  kBoolean,
  kString,
  kStrings,
  kObject
};

enum class KeywordUse : std::uint8_t { kReference, kAll, kChoice, kConstraint, kRefused };

struct KeywordRow {
  std::string_view name;
  KeywordForm form;
  KeywordUse use;
  unsigned types = kJsonAny;  // of the values that it constrains
};

// Null for annotations and names that the standard does not have: they are ignored.
const KeywordRow* find_keyword(std::string_view name);

// Null if the value has the form, else what it must be.
const char* form_problem(KeywordForm form, const OrderedJson& value);

// A refused keyword whose value asks for nothing, such as "uniqueItems": false.
bool asks_for_nothing(const KeywordRow& row, const OrderedJson& value);

// Whether it is a number that was read exactly: whole numbers beyond 64 bits are read as doubles.
bool is_exact_number(const OrderedJson& value);

// Of "string" and so on; 0 for an unknown name.
unsigned type_of_name(std::string_view name);
unsigned type_of_value(const OrderedJson& value);

}  // namespace foretoken
