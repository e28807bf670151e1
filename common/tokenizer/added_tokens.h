// Finds tokens that are matched before anything else happens to a text: leftmost first, longest
// among those, with the neighbourly habits of each (eat spaces, stand alone). Immutable.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "common/tokenizer/spec.h"

namespace foretoken {

// Byte strings by prefix. Node 0 is the root.
class ByteTrie {
 public:
  static constexpr std::int32_t kNone = -1;
  ByteTrie() : nodes_(1) {}
  // The first pattern added for a string keeps it. Returns the node of its end.
  std::int32_t add(std::string_view pattern, std::int32_t value);
  std::int32_t child(std::int32_t node, char byte) const;
  std::int32_t value(std::int32_t node) const {
    return nodes_[static_cast<std::size_t>(node)].value;
  }
  std::size_t size() const { return nodes_.size(); }
  const std::vector<std::pair<char, std::int32_t>>& children(std::int32_t node) const {
    return nodes_[static_cast<std::size_t>(node)].children;
  }

 private:
  struct Node {
    std::vector<std::pair<char, std::int32_t>> children;  // ascending by byte
    std::int32_t value = kNone;
  };
  std::vector<Node> nodes_;
};

class AddedTokenMatcher {
 public:
  // Adds a token under the text it matches as (its content, perhaps normalized). Empty text matches
  // nothing.
  void add(const AddedToken& token, std::string_view text);
  bool empty() const { return tokens_.empty(); }

  struct Segment {
    std::size_t begin;
    std::size_t end;
    std::optional<TokenId> token;  // none: ordinary text
  };
  // Appends the segments of `text` in order.
  void split(std::string_view text, std::vector<Segment>& segments) const;

 private:
  ByteTrie trie_;
  std::array<bool, 256> may_start_{};
  std::vector<AddedToken> tokens_;
};

}  // namespace foretoken
