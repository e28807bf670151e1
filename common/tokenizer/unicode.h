// The door of utf8proc: what kind of character a code point is, its width, lower case, and the four
// normalization forms. The classes follow the properties the reference uses (White_Space, the
// numeric and punctuation categories, \w of UTS 18). Pure functions; text in must be valid UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace foretoken::unicode {

bool is_space(char32_t code_point);
bool is_numeric(char32_t code_point);      // Nd, Nl, No
bool is_punctuation(char32_t code_point);  // any P category, and the ASCII symbols
bool is_word(char32_t code_point);         // letters, marks, decimal digits, connectors, joiners

int columns_of(char32_t code_point);  // of a terminal: 2 for a wide one, 0 for a mark

enum class Form { kNfc, kNfd, kNfkc, kNfkd };

// Sorting marks is done by a stable sort per run, so that a megabyte of combining marks stays n log
// n.
std::string normalize(std::string_view text, Form form);
std::string lowercase(std::string_view text);  // one character at a time, without context

}  // namespace foretoken::unicode
