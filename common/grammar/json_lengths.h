// Texts of an expression, limited to some lengths: a pattern beside minLength or maxLength.
#pragma once

#include <optional>
#include <set>

#include "common/grammar/expressions.h"

namespace foretoken {

// The texts whose count of characters lies within both; `characters` are the expressions that write
// one each. None if that cannot be said by other counts of repetition.
std::optional<ExpressionId> with_length(ExpressionId id,
                                        std::uint32_t min,
                                        std::uint32_t max,
                                        const std::set<ExpressionId>& characters,
                                        Expressions& expressions);

}  // namespace foretoken
