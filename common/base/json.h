// The door to nlohmann/json: an alias and a strict parse. Include it from few .cc files: the header
// is heavy. Parsed text is from outside, so depth and size are limited and a key that appears twice
// in an object is an error, not a choice. No exception leaves this room; accessors that throw (at,
// get) are for values whose type was checked.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace foretoken {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;  // keeps the order of keys, for writing

struct JsonLimits {
  std::size_t max_bytes = 16u << 20;
  std::size_t max_depth = 64;
  std::size_t max_nodes = 4'000'000;  // values of any kind
  std::size_t max_keys = 4'000'000;   // of one object
};

// For what is read a second time as OrderedJson, whose objects compare a new key with all before
// it.
inline constexpr std::size_t kMaxOrderedKeys = 512;

// Whole text is one JSON value in valid UTF-8 (no byte order mark), numbers finite. The error is
// kMalformed and says what is wrong and at which byte; the caller adds which file.
Result<Json> parse_json(std::string_view text, const JsonLimits& limits = {});

// Compact, or indented by `indent` spaces. Invalid UTF-8 in strings becomes U+FFFD.
std::string to_text(const Json& value, int indent = -1);
std::string to_text(const OrderedJson& value, int indent = -1);

// A float as the double with the shortest text that reads back as the same float: 0.6 and not
// 0.6000000238418579.
double shortest(float value);

}  // namespace foretoken
