// Whether a JSON value satisfies schemas: for values that a schema lists itself (enum, const), and
// for telling branches of oneOf apart. Not for use outside of common/grammar.
#pragma once

#include <cstdint>
#include <vector>

#include "common/grammar/json_schema_facts.h"

namespace foretoken {

enum class Verdict : std::uint8_t { kNo, kYes, kUnknown };  // unknown: a keyword not evaluated here

// As JSON Schema compares: 1 and 1.0 are equal, the order of keys says nothing.
bool are_equal_values(const OrderedJson& a, const OrderedJson& b);

Verdict check_value(const OrderedJson& value, const FlatSchema& flat, SchemaDocument& document);

// The values of the first "enum" or "const" among the facts; empty if there is none.
std::vector<const OrderedJson*> listed_values(const SchemaFacts& facts);

// Whether no value satisfies both. False also where that cannot be shown.
bool are_disjoint(const FlatSchema& a, const FlatSchema& b, SchemaDocument& document);

}  // namespace foretoken
