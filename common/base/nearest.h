// What an error says of a word that is none of the known ones. Pure functions.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace foretoken {

// "Did you mean": the known word nearest to a mistyped one, if any is near.
std::optional<std::string> nearest(const std::string& word, const std::vector<std::string>& known);

// "a, b or c"
template <class Words>
std::string alternatives(const Words& words) {
  std::string text;
  std::size_t i = 0;
  for (const auto& word : words) {
    ++i;
    text += (i == 1 ? "" : i == words.size() ? " or " : ", ") + std::string(word);
  }
  return text;
}

}  // namespace foretoken
