#include "common/spec/suffix_index.h"

#include <algorithm>

namespace foretoken {
namespace {

// Of the last `order` tokens; unequal tokens with equal keys differ by comparison.
std::uint64_t key_of(std::span<const TokenId> tokens, std::size_t order) {
  std::uint64_t key = order;
  for (const TokenId token : tokens.last(order))
    key = (key ^ static_cast<std::uint32_t>(token)) * 0x9E3779B97F4A7C15ull + (key >> 29);
  return key;
}

}  // namespace

void SuffixIndex::extend(std::span<const TokenId> text) {
  for (std::size_t end = earlier_[0].size() + 1; end <= text.size(); ++end) {
    for (std::size_t order = 1; order <= kOrders; ++order) {
      auto& earlier = earlier_[order - 1];
      earlier.push_back(kNowhere);
      if (end < order) continue;
      const auto place = static_cast<std::uint32_t>(end);
      const auto [latest, is_new] =
          latest_[order - 1].try_emplace(key_of(text.first(end), order), place);
      if (is_new) continue;
      earlier.back() = latest->second;
      latest->second = place;
    }
  }
}

std::vector<SuffixIndex::Match> SuffixIndex::places(std::span<const TokenId> text,
                                                    std::span<const TokenId> query) const {
  std::vector<Match> found;
  for (std::size_t order = std::min(kOrders, query.size()); order >= 1 && found.empty(); --order) {
    const auto latest = latest_[order - 1].find(key_of(query, order));
    if (latest == latest_[order - 1].end()) continue;
    std::size_t n_looked = 0;
    for (std::uint32_t end = latest->second; end != kNowhere && n_looked < kMaxPlaces;
         end = earlier_[order - 1][end - 1], ++n_looked) {
      if (end == text.size()) continue;  // nothing follows yet
      std::uint32_t length = 0;
      const std::size_t most = std::min<std::size_t>({max_match_, query.size(), end});
      while (length < most && text[end - 1 - length] == query[query.size() - 1 - length]) ++length;
      if (length > 0) found.push_back({end, length});
    }
  }
  return found;
}

std::vector<SuffixIndex::Match> SuffixIndex::longest(std::span<const TokenId> text,
                                                     std::span<const TokenId> query) const {
  std::vector<Match> found = places(text, query);
  std::uint32_t most = 0;
  for (const Match& match : found) most = std::max(most, match.length);
  std::erase_if(found, [&](const Match& match) { return match.length < most; });
  return found;
}

SuffixIndex::Match SuffixIndex::find(std::span<const TokenId> text,
                                     std::span<const TokenId> query,
                                     std::size_t near) const {
  const auto distance = [near](const Match& match) {  // places ahead come before places behind
    return match.next >= near ? match.next - near : (near - match.next) + (std::size_t{1} << 32);
  };
  const std::vector<Match> found = longest(text, query);
  const auto best = std::ranges::min_element(found, {}, distance);
  return best == found.end() ? Match{} : *best;
}

}  // namespace foretoken
