// Reads a JSON Schema (2020-12 or draft 7; a subset, docs/structured_output.md) as the JSON texts
// that it allows: compact, without white space, keys in the order of `properties`.
#pragma once

#include <string_view>

#include "common/base/result.h"
#include "common/grammar/expressions.h"

namespace foretoken {

// `schema` is JSON text. A keyword that is not supported is refused: the error names it with the
// JSON pointer to where it stands.
Result<ExpressionId> read_json_schema(std::string_view schema, Expressions& expressions);

}  // namespace foretoken
