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

enum class RegexPlace { kOutsideClass, kInClass, kInNegatedClass };

// Which characters \s, \S and . allow. kAscii: the six spaces of ASCII, all but those, all but a
// line feed. kEcmaScript: only what ECMA-262 allows, where spaces include those of Unicode; \s
// allows those of ASCII alone, a safe subset, since dialects differ in the others.
enum class RegexSets { kAscii, kEcmaScript };

// All characters but those that end a line.
std::vector<CharacterRange> regex_dot(RegexSets sets);

// What follows a backslash, which is taken already. The cursor has the error, if there is one.
// In a negated class \s and \S are the larger sets, so that the class allows the fewer characters.
RegexCharacters read_regex_escape(TextCursor& cursor, RegexPlace place, RegexSets sets);

// What follows an opening bracket, which is taken already, up to the closing one.
std::vector<CharacterRange> read_regex_class(TextCursor& cursor, RegexSets sets);

}  // namespace foretoken
