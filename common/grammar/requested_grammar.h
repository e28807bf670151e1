// The grammar that a request's parameters name.
#pragma once

#include <list>
#include <optional>
#include <string>
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

// Whether the grammar of a request can be read, with the verdicts on the last ones: requests often
// have the same. One thread.
class GrammarChecker {
 public:
  // Nothing is wrong with parameters without a grammar. The error's param is the parameter's key.
  Result<void> check(const SamplingParams& params);

 private:
  static constexpr std::size_t kMaxKept = 32;
  struct Verdict {
    GrammarKind kind = GrammarKind::kJsonSchema;
    std::string text;
    Result<void> result = {};
  };
  std::list<Verdict> verdicts_;  // last used first
};

// The constraint at its beginning; none if the parameters name no grammar. `constraints` null: a
// grammar is refused.
Result<std::optional<Constraint>> open_constraint(const SamplingParams& params,
                                                  Constraints* constraints);

}  // namespace foretoken
