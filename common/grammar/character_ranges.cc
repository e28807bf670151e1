#include "common/grammar/character_ranges.h"

#include <algorithm>

namespace foretoken {

std::vector<CharacterRange> sorted_ranges(std::span<const CharacterRange> ranges) {
  std::vector<CharacterRange> sorted(ranges.begin(), ranges.end());
  std::ranges::sort(sorted, {}, &CharacterRange::first);
  std::vector<CharacterRange> joined;
  for (const CharacterRange& range : sorted) {
    if (!joined.empty() && range.first <= joined.back().last + 1)
      joined.back().last = std::max(joined.back().last, range.last);
    else
      joined.push_back(range);
  }
  return joined;
}

std::vector<CharacterRange> other_characters(std::span<const CharacterRange> ranges) {
  std::vector<CharacterRange> others;
  char32_t next = 0;
  for (const CharacterRange& range : sorted_ranges(ranges)) {
    if (range.first > next) others.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLastCharacter) others.push_back({next, kLastCharacter});
  return others;
}

}  // namespace foretoken
