#include "common/grammar/grammar.h"

#include <optional>
#include <string>
#include <utility>

#include "common/base/utf8.h"
#include "common/grammar/expression_facts.h"
#include "common/grammar/gbnf.h"
#include "common/grammar/grammar_compiler.h"
#include "common/grammar/json_schema.h"
#include "common/grammar/node_graph.h"
#include "common/grammar/regex.h"

namespace foretoken {
namespace {

ExpressionId as_utf8(Expressions& expressions, std::span<const CharacterRange> ranges) {
  return expressions.character(ranges);
}

Result<ExpressionId> read_text(GrammarKind kind, std::string_view text, Expressions& expressions) {
  switch (kind) {
    case GrammarKind::kJsonSchema:
      return read_json_schema(text, expressions);
    case GrammarKind::kRegex:
      return read_regex(text, RegexAnchors::kWhole, as_utf8, expressions);
    case GrammarKind::kGbnf:
      break;
  }
  return read_gbnf(text, expressions);
}

}  // namespace

Result<std::shared_ptr<const Grammar>> Grammar::read(GrammarKind kind, std::string_view text) {
  if (text.size() > kMaxTextBytes)
    return Error{ErrorCode::kInvalidValue, "the text has " + std::to_string(text.size()) +
                                               " bytes, and the limit is " +
                                               std::to_string(kMaxTextBytes)};
  if (const auto invalid = utf8::first_invalid(text))
    return Error{ErrorCode::kInvalidValue,
                 "the text is not valid UTF-8 at byte " + std::to_string(*invalid)};
  Expressions expressions;
  auto start = read_text(kind, text, expressions);
  if (!start.ok()) return start.error();
  return compile(expressions, *start);
}

Result<std::shared_ptr<const Grammar>> Grammar::compile(const Expressions& expressions,
                                                        ExpressionId start) {
  auto facts = ExpressionFacts::of(expressions, start);
  if (!facts.ok()) return facts.error();
  if (!facts->allows_text[static_cast<std::uint32_t>(start)])
    return Error{ErrorCode::kInvalidValue, "it allows no text at all"};
  NodeGraph graph = NodeGraphBuilder(expressions, *facts).build(start);
  return GrammarCompiler(expressions, std::move(graph)).compile();
}

}  // namespace foretoken
