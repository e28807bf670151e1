// Reads a regular expression: the dialect that JSON Schema's `pattern` and vLLM's `regex` share.
// Literals, escapes, classes, groups, alternatives, quantifiers up to 1,000. Look-around,
// back-references and lazy or possessive quantifiers' meaning are refused or of no effect, as the
// documentation says.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "common/base/result.h"
#include "common/grammar/expressions.h"

namespace foretoken {

// Whether the whole text must match, or `^` and `$` say so: JSON Schema's `pattern`, where \S and .
// allow no character that ECMA-262 does not.
enum class RegexAnchors { kWhole, kSearch };

// How one code point of a set is written: as UTF-8, or as within a JSON string.
using CharacterWriter = std::function<ExpressionId(Expressions&, std::span<const CharacterRange>)>;

// The texts that match. The error says what is wrong and at which byte of `pattern`.
Result<ExpressionId> read_regex(std::string_view pattern,
                                RegexAnchors anchors,
                                const CharacterWriter& write,
                                Expressions& expressions);

}  // namespace foretoken
