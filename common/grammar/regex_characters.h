// The characters that a regular expression names: by an escape, or by a class in brackets.
#pragma once

#include <optional>
#include <vector>

#include "common/grammar/expressions.h"
#include "common/grammar/text_cursor.h"

namespace foretoken {

// One item of a class: a single character, or a set as \d is.
struct RegexCharacters {
  std::vector<CharacterRange> ranges;
  bool is_single = false;
};

enum class RegexPlace { kOutsideClass, kInClass };

// What follows a backslash, which is taken already. The cursor has the error, if there is one.
RegexCharacters read_regex_escape(TextCursor& cursor, RegexPlace place);

// What follows an opening bracket, which is taken already, up to the closing one.
std::vector<CharacterRange> read_regex_class(TextCursor& cursor);

}  // namespace foretoken
