// What constrains an answer's text: the fields of OpenAI, vLLM, llama.cpp and Anthropic for it,
// read into the one key of a request to the router that says the same. What a schema, an expression
// or a grammar means is not known here: the router refuses what cannot be read, and its error then
// names the field that gave it. A schema keeps the order of its keys, because an answer has it too.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json.h"
#include "common/base/limit.h"
#include "common/base/result.h"
#include "services/edge/body_fields.h"

namespace foretoken::edge {

// Fields of chat and completions, in endpoints that have another field for it: refused, because
// their answer would be free without a word.
inline constexpr BodyField kForeignConstraints[] = {
    {"response_format", FieldUse::kRefused},
    {"structured_outputs", FieldUse::kRefused},
    {"guided_json", FieldUse::kRefused},
    {"guided_regex", FieldUse::kRefused},
    {"guided_choice", FieldUse::kRefused},
    {"guided_grammar", FieldUse::kRefused},
    {"json_schema", FieldUse::kRefused},
    {"regex", FieldUse::kRefused},
    {"gbnf", FieldUse::kRefused},
    {"grammar", FieldUse::kRefused},
};

inline constexpr Limit kChoicesOfTextLimit = entries(1024);  // structured_outputs.choice

struct AnswerConstraint {
  std::string field;     // its path in the body, for errors
  std::string_view key;  // of the request to the router
  std::string text;
};
using ReadConstraint = Result<std::optional<AnswerConstraint>>;  // nothing: the answer is free

// {"type": "text"}, {"type": "json_object"} or {"type": "json_schema", ...}: the schema stands
// beside the type, or in the member `within`, as chat has it. `where` names the object.
ReadConstraint read_format(const OrderedJson& format,
                           const std::string& where,
                           const char* within = nullptr);

// Of a body of chat or completions. Two constraints are an error that names both. Members that say
// nothing to us are added to `ignored`.
ReadConstraint read_constraint(const OrderedJson& body, std::vector<std::string>& ignored);

// Puts it into a request to the router. The field that gave it; "" = none did.
std::string use_constraint(std::optional<AnswerConstraint> constraint, Json& request);

}  // namespace foretoken::edge
