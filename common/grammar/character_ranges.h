// Sets of code points as lists of ranges. Pure.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "common/grammar/expressions.h"

namespace foretoken {

inline constexpr char32_t kLastCharacter = 0x10FFFF;
inline constexpr CharacterRange kAllCharacters{0, kLastCharacter};

// The same set: ascending, ranges neither meet nor touch.
std::vector<CharacterRange> sorted_ranges(std::span<const CharacterRange> ranges);
// All other code points, surrogates included where they are not in `ranges`.
std::vector<CharacterRange> other_characters(std::span<const CharacterRange> ranges);

constexpr bool is_surrogate(char32_t character) {
  return character >= 0xD800 && character <= 0xDFFF;
}

}  // namespace foretoken
