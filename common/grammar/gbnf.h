// Reads a grammar in llama.cpp's GBNF. The rule `root` is the start; rules may call one another,
// but not themselves at their own beginning (left recursion).
#pragma once

#include <string_view>

#include "common/base/result.h"
#include "common/grammar/expressions.h"

namespace foretoken {

// The error says what is wrong and on which line.
Result<ExpressionId> read_gbnf(std::string_view text, Expressions& expressions);

}  // namespace foretoken
