#include "common/tokenizer/added_tokens.h"

#include <algorithm>

#include "common/base/utf8.h"

namespace foretoken {
namespace {

constexpr auto kByByte = [](const std::pair<char, std::int32_t>& edge, char byte) {
  return edge.first < byte;
};

std::size_t spaces_end(std::string_view text, std::size_t from) {
  while (from < text.size()) {
    const utf8::CodePoint point = utf8::code_point_at(text, from);
    if (!unicode::is_space(point.value)) break;
    from += point.length;
  }
  return from;
}

std::size_t spaces_begin(std::string_view text, std::size_t until, std::size_t floor) {
  while (until > floor) {
    const utf8::CodePoint point = utf8::code_point_before(text, until);
    if (!unicode::is_space(point.value)) break;
    until -= point.length;
  }
  return until;
}

bool stands_alone(std::string_view text, std::size_t begin, std::size_t end) {
  if (begin > 0 && unicode::is_word(utf8::code_point_before(text, begin).value)) return false;
  return end == text.size() || !unicode::is_word(utf8::code_point_at(text, end).value);
}

}  // namespace

std::int32_t ByteTrie::add(std::string_view pattern, std::int32_t value) {
  std::size_t node = 0;
  for (const char byte : pattern) {
    auto& edges = nodes_[node].children;
    auto edge = std::lower_bound(edges.begin(), edges.end(), byte, kByByte);
    if (edge == edges.end() || edge->first != byte) {
      const auto fresh = static_cast<std::int32_t>(nodes_.size());
      edges.insert(edge, {byte, fresh});
      nodes_.emplace_back();  // may move `edges`
      node = static_cast<std::size_t>(fresh);
    } else {
      node = static_cast<std::size_t>(edge->second);
    }
  }
  if (nodes_[node].value == kNone) nodes_[node].value = value;
  return static_cast<std::int32_t>(node);
}

std::int32_t ByteTrie::child(std::int32_t node, char byte) const {
  const auto& edges = nodes_[static_cast<std::size_t>(node)].children;
  const auto edge = std::lower_bound(edges.begin(), edges.end(), byte, kByByte);
  return edge != edges.end() && edge->first == byte ? edge->second : kNone;
}

void AddedTokenMatcher::add(const AddedToken& token, std::string_view text) {
  if (text.empty()) return;
  trie_.add(text, static_cast<std::int32_t>(tokens_.size()));
  may_start_[static_cast<unsigned char>(text.front())] = true;
  tokens_.push_back(token);
}

void AddedTokenMatcher::split(std::string_view text, std::vector<Segment>& segments) const {
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size();) {
    if (!may_start_[static_cast<unsigned char>(text[at])]) {
      ++at;
      continue;
    }
    std::int32_t found = ByteTrie::kNone;
    std::size_t end = at;
    std::int32_t node = 0;
    for (std::size_t i = at;
         i < text.size() && (node = trie_.child(node, text[i])) != ByteTrie::kNone; ++i) {
      if (trie_.value(node) == ByteTrie::kNone) continue;
      found = trie_.value(node);
      end = i + 1;
    }
    if (found == ByteTrie::kNone) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<std::size_t>(found)];
    const std::size_t match_begin = at;
    at = end;  // the search goes on behind the match itself, whether it counts or not
    if (token.single_word && !stands_alone(text, match_begin, end)) continue;
    std::size_t begin = match_begin;
    if (token.lstrip)
      begin = std::max(spaces_begin(text, match_begin, std::min(done, match_begin)), done);
    if (token.rstrip) end = spaces_end(text, end);
    // A token made of spaces may lie within what its neighbour has eaten. As in the reference it
    // counts all the same, unless it eats to the left and so begins where that ended: then nothing
    // is left of it.
    if (begin >= end) continue;
    if (done < begin) segments.push_back({done, begin, std::nullopt});
    segments.push_back({begin, end, token.id});
    done = end;
  }
  if (done < text.size()) segments.push_back({done, text.size(), std::nullopt});
}

}  // namespace foretoken
