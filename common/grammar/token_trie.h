// A vocabulary by the bytes of its tokens: a tree in which a node is a byte after the bytes above
// it, stored in the order of a walk that visits a node before what is below it. Immutable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/ids.h"
#include "common/grammar/expressions.h"

namespace foretoken {

class TokenTrie {
 public:
  static constexpr std::size_t kMaxTokenBytes = 65'535;

  // By id. Tokens without bytes or with too many are left out.
  explicit TokenTrie(std::span<const std::string_view> token_bytes);

  struct Node {
    std::uint32_t end = 0;          // the first node that is not below it
    std::uint32_t first_token = 0;  // its own tokens come before those below it
    std::uint32_t bytes_below = 0;  // an index, see below()
    std::uint16_t depth = 0;        // bytes of its tokens
    std::uint16_t height = 0;       // bytes more of the longest token below it
    unsigned char byte = 0;
  };
  // Node 0 is the root; one more than there are marks the end.
  std::size_t n_nodes() const { return nodes_.size() - 1; }
  const Node& operator[](std::size_t node) const { return nodes_[node]; }
  std::span<const TokenId> tokens_at(std::size_t node) const {
    return tokens_between(nodes_[node].first_token, nodes_[node + 1].first_token);
  }
  std::span<const TokenId> tokens_at_and_below(std::size_t node) const {
    return tokens_between(nodes_[node].first_token, nodes_[nodes_[node].end].first_token);
  }
  // The bytes of all nodes below one.
  const ByteSet& below(const Node& node) const { return byte_sets_[node.bytes_below]; }

  std::size_t n_ids() const { return bytes_.size(); }
  std::string_view bytes(TokenId token) const;  // empty for ids outside
  std::size_t max_depth() const { return nodes_.front().height; }

 private:
  std::span<const TokenId> tokens_between(std::size_t first, std::size_t end) const {
    return std::span(tokens_).subspan(first, end - first);
  }
  void add_nodes();
  void add_sets();

  std::vector<Node> nodes_;
  std::vector<TokenId> tokens_;  // by bytes
  std::vector<ByteSet> byte_sets_;
  std::vector<std::string> bytes_;  // by id
};

}  // namespace foretoken
