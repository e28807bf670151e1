// Finds where a text has been seen before: for the last tokens of one text, the places in an
// indexed text where the longest run of equal tokens ends. Chains of places by their last one, two
// and three tokens, each place compared token by token, so nothing is found that is not there. It
// holds no tokens: the caller gives the indexed text with each call, and it may only grow. Pure;
// one thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "common/base/ids.h"

namespace foretoken {

class SuffixIndex {
 public:
  static constexpr std::size_t kOrders = 3;      // chains by 1, 2 and 3 tokens
  static constexpr std::size_t kMaxPlaces = 64;  // looked at per chain, the latest first

  // Longest run worth telling apart.
  explicit SuffixIndex(std::uint32_t max_match) : max_match_(max_match) {}

  // Indexes what `text` has beyond the last call.
  void extend(std::span<const TokenId> text);

  struct Match {
    std::size_t next = 0;      // index in the text of the token that followed
    std::uint32_t length = 0;  // equal tokens before it; 0: nothing found
  };
  // The places of the longest run at the end of `query`, the latest first. Only places with a token
  // after them.
  std::vector<Match> longest(std::span<const TokenId> text, std::span<const TokenId> query) const;
  // Of those the first at or after `near`, or the nearest before it.
  Match find(std::span<const TokenId> text, std::span<const TokenId> query, std::size_t near) const;

 private:
  static constexpr std::uint32_t kNowhere = 0xFFFFFFFFu;
  std::vector<Match> places(std::span<const TokenId> text, std::span<const TokenId> query) const;

  std::uint32_t max_match_;
  // Key of last tokens -> end.
  std::array<std::unordered_map<std::uint64_t, std::uint32_t>, kOrders> latest_;
  std::array<std::vector<std::uint32_t>, kOrders> earlier_;  // end -> the end before, same key
};

}  // namespace foretoken
