// Masks of allowed tokens that have been found, the last ones used. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace foretoken {

class MaskCache {
 public:
  MaskCache(std::size_t n_words, std::size_t max_bytes)
      : n_words_(n_words), max_bytes_(max_bytes) {}

  // Automata have serial numbers that are never used again.
  struct Key {
    std::uint64_t automaton = 0;
    std::uint32_t state = 0;
    bool operator==(const Key&) const = default;
  };
  // The mask, which find(words) writes over zeros if it is not known. The one asked for last stays,
  // whatever the limit.
  std::span<const std::uint32_t> get(Key key,
                                     const std::function<void(std::span<std::uint32_t>)>& find);

 private:
  struct KeyHash {
    std::size_t operator()(const Key& key) const {
      return (key.automaton ^ (std::uint64_t{key.state} << 32)) * 0x9E3779B97F4A7C15ull >> 16;
    }
  };
  using Masks = std::list<std::pair<Key, std::vector<std::uint32_t>>>;

  std::size_t n_words_;
  std::size_t max_bytes_;
  Masks masks_;  // the last used first
  std::unordered_map<Key, Masks::iterator, KeyHash> places_;
};

}  // namespace foretoken
