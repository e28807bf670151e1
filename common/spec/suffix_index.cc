#include "common/spec/suffix_index.h"

#include <algorithm>
#include <map>

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

SuffixIndex::Match SuffixIndex::find(std::span<const TokenId> text,
                                     std::span<const TokenId> query) const {
  const std::vector<Match> found = places(text, query);
  std::uint32_t longest = 0;
  for (const Match& match : found) longest = std::max(longest, match.length);
  std::map<TokenId, std::uint32_t> n_seen;
  for (const Match& match : found)
    if (match.length == longest) ++n_seen[text[match.next]];
  Match best;
  std::uint32_t most = 0;
  for (const Match& match : found) {  // the latest first
    if (match.length != longest || n_seen[text[match.next]] <= most) continue;
    most = n_seen[text[match.next]];
    best = match;
  }
  return best;
}

SuffixIndex::Match SuffixIndex::find(std::span<const TokenId> text,
                                     std::span<const TokenId> query,
                                     std::size_t near) const {
  Match best;
  const auto distance = [near](const Match& match) {  // places ahead come before places behind
    return match.next >= near ? match.next - near : (near - match.next) + (std::size_t{1} << 32);
  };
  for (const Match& match : places(text, query))
    if (match.length > best.length ||
        (match.length == best.length && distance(match) < distance(best)))
      best = match;
  return best;
}

}  // namespace foretoken
