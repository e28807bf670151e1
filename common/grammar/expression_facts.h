// What must be known of expressions before nodes are made of them: what is in use, what can be
// written at all, what may be the empty text, and how large it becomes. Time grows with the number
// of expressions, whatever they repeat. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/result.h"
#include "common/grammar/expressions.h"

namespace foretoken {

struct ExpressionFacts {
  std::vector<bool> allows_text;    // by expression: some text, be it empty
  std::vector<bool> may_be_empty;   // by expression
  std::vector<std::uint32_t> cost;  // by expression: nodes and steps to build it, at least

  // Errors: a rule that is not defined, what is too large or nested too deeply.
  static Result<ExpressionFacts> of(const Expressions& expressions, ExpressionId start);
};

// A repeated part is built in place if it is small and never empty, else as a rule of its own that
// is called.
bool is_built_as_rule(const Expression& repeat, const ExpressionFacts& facts);

}  // namespace foretoken
