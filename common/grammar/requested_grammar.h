// The grammar that a request's parameters name.
#pragma once

#include <optional>
#include <string_view>

#include "common/base/result.h"
#include "common/base/sampling_params.h"
#include "common/grammar/constraint.h"
#include "common/grammar/grammar.h"

namespace foretoken {

struct RequestedGrammar {
  GrammarKind kind = GrammarKind::kJsonSchema;
  std::string_view text;  // borrowed of the parameters
  std::string_view key;   // of the parameter
};

// Parameters with two grammars are refused before (validate()).
std::optional<RequestedGrammar> requested_grammar(const SamplingParams& params);

// Whether the grammar, if there is one, can be read. The error's param is the parameter's key.
Result<void> check_grammar(const SamplingParams& params);

// The constraint at its beginning; none if the parameters name no grammar. `constraints` null: a
// grammar is refused.
Result<std::optional<Constraint>> open_constraint(const SamplingParams& params,
                                                  Constraints* constraints);

}  // namespace foretoken
