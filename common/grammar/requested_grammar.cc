#include "common/grammar/requested_grammar.h"

#include <algorithm>
#include <string>
#include <utility>

namespace foretoken {
namespace {

Error blamed_on(const RequestedGrammar& grammar, Error error) {
  error.message = std::string(grammar.key) + ": " + error.message;
  error.param = grammar.key;
  return error;
}

}  // namespace

std::optional<RequestedGrammar> requested_grammar(const SamplingParams& params) {
  if (!params.json_schema.empty())
    return RequestedGrammar{GrammarKind::kJsonSchema, params.json_schema, "json_schema"};
  if (!params.regex.empty()) return RequestedGrammar{GrammarKind::kRegex, params.regex, "regex"};
  if (!params.gbnf.empty()) return RequestedGrammar{GrammarKind::kGbnf, params.gbnf, "gbnf"};
  return std::nullopt;
}

Result<void> GrammarChecker::check(const SamplingParams& params) {
  const auto grammar = requested_grammar(params);
  if (!grammar) return {};
  const auto known = std::find_if(verdicts_.begin(), verdicts_.end(), [&](const Verdict& one) {
    return one.kind == grammar->kind && one.text == grammar->text;
  });
  if (known != verdicts_.end()) {
    verdicts_.splice(verdicts_.begin(), verdicts_, known);
  } else {
    auto read = Grammar::read(grammar->kind, grammar->text);
    verdicts_.push_front({.kind = grammar->kind, .text = std::string(grammar->text)});
    if (!read.ok()) verdicts_.front().result = blamed_on(*grammar, read.error());
    if (verdicts_.size() > kMaxKept) verdicts_.pop_back();
  }
  return verdicts_.front().result;
}

Result<std::optional<Constraint>> open_constraint(const SamplingParams& params,
                                                  Constraints* constraints) {
  const auto grammar = requested_grammar(params);
  if (!grammar) return std::optional<Constraint>{};
  if (constraints == nullptr)
    return blamed_on(*grammar,
                     {ErrorCode::kInvalidValue, "this model's vocabulary cannot be constrained"});
  auto opened = constraints->open(grammar->kind, grammar->text);
  if (!opened.ok()) return blamed_on(*grammar, opened.error());
  return std::optional<Constraint>(std::move(*opened));
}

}  // namespace foretoken
