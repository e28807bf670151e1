#include "common/grammar/token_trie.h"

#include <algorithm>
#include <unordered_map>

namespace foretoken {
namespace {

std::size_t common_prefix(std::string_view a, std::string_view b) {
  return static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

}  // namespace

TokenTrie::TokenTrie(std::span<const std::string_view> token_bytes)
    : bytes_(token_bytes.begin(), token_bytes.end()) {
  for (std::size_t id = 0; id < bytes_.size(); ++id)
    if (!bytes_[id].empty() && bytes_[id].size() <= kMaxTokenBytes)
      tokens_.push_back(static_cast<TokenId>(id));
  std::ranges::stable_sort(tokens_, {}, [&](TokenId token) { return bytes(token); });
  add_nodes();
  add_sets();
}

std::string_view TokenTrie::bytes(TokenId token) const {
  if (token < 0 || static_cast<std::size_t>(token) >= bytes_.size()) return {};
  return bytes_[static_cast<std::size_t>(token)];
}

// Tokens come sorted, so a node is complete once a token comes that is not below it.
void TokenTrie::add_nodes() {
  std::vector<std::size_t> path{0};
  const auto leave = [&] {
    Node& node = nodes_[path.back()];
    node.end = static_cast<std::uint32_t>(nodes_.size());
    path.pop_back();
    if (path.empty()) return;
    Node& above = nodes_[path.back()];
    above.height = std::max<std::uint16_t>(above.height, node.height + 1);
  };
  nodes_.emplace_back();
  std::string_view last;
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const std::string_view text = bytes(tokens_[i]);
    const std::size_t n_common = common_prefix(last, text);
    while (path.size() > n_common + 1) leave();
    for (std::size_t at = n_common; at < text.size(); ++at) {
      path.push_back(nodes_.size());
      nodes_.push_back({.first_token = static_cast<std::uint32_t>(i),
                        .depth = static_cast<std::uint16_t>(at + 1),
                        .byte = static_cast<unsigned char>(text[at])});
    }
    last = text;
  }
  while (!path.empty()) leave();
  const auto end = static_cast<std::uint32_t>(nodes_.size());
  nodes_.push_back({.end = end, .first_token = static_cast<std::uint32_t>(tokens_.size())});
}

void TokenTrie::add_sets() {
  std::unordered_map<ByteSet, std::uint32_t> indices;
  std::vector<ByteSet> open(max_depth() + 2);  // by depth: the bytes below the node under way
  for (std::size_t i = n_nodes(); i-- > 0;) {  // what is below a node comes before it
    Node& node = nodes_[i];
    ByteSet& below_it = open[node.depth + std::size_t{1}];
    const auto [known, is_new] =
        indices.try_emplace(below_it, static_cast<std::uint32_t>(byte_sets_.size()));
    if (is_new) byte_sets_.push_back(below_it);
    node.bytes_below = known->second;
    ByteSet& above = open[node.depth];
    above |= below_it;
    if (i > 0) above.set(node.byte);
    below_it.reset();
  }
}

}  // namespace foretoken
