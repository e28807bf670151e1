#include "common/base/nearest.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace foretoken {

std::optional<std::string> nearest(const std::string& word, const std::vector<std::string>& known) {
  // Two changes make any short word of any other.
  std::size_t best = (word.size() <= 3 ? 1 : std::max<std::size_t>(2, word.size() / 3)) + 1;
  std::optional<std::string> answer;
  for (const auto& candidate : known) {
    // Edit distance, one row at a time.
    std::vector<std::size_t> row(candidate.size() + 1);
    for (std::size_t j = 0; j < row.size(); ++j) row[j] = j;
    for (std::size_t i = 1; i <= word.size(); ++i) {
      std::size_t diagonal = std::exchange(row[0], i);
      for (std::size_t j = 1; j <= candidate.size(); ++j) {
        const std::size_t change = diagonal + (word[i - 1] == candidate[j - 1] ? 0 : 1);
        diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, change}));
      }
    }
    if (row.back() < best) {
      best = row.back();
      answer = candidate;
    }
  }
  return answer;
}

}  // namespace foretoken
