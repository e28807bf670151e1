// The texts beside a chain that a proposal says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "common/messages/draft.h"
#include "common/spec/proposal.h"

namespace foretoken::test {

// A text that a proposal says, and how much of it is its chain's.
struct SaidText {
  std::vector<TokenId> tokens;
  std::size_t n_chain = 0;  // of these, from the first on
};

inline std::vector<SaidText> branches_of(const wire::ProposalRecord& record) {
  std::vector<SaidText> texts;
  std::vector<bool> has_next(record.tokens.size());
  for (const std::uint16_t parent : record.parents)
    if (parent != kParentIsBase) has_next[parent] = true;
  for (std::size_t leaf = chain_length(record); leaf < record.tokens.size(); ++leaf) {
    if (has_next[leaf]) continue;
    SaidText text;
    for (std::size_t at = leaf;; at = record.parents[at]) {
      text.tokens.insert(text.tokens.begin(), record.tokens[at]);
      text.n_chain += at < chain_length(record) ? 1 : 0;
      if (record.parents[at] == kParentIsBase) break;
    }
    texts.push_back(std::move(text));
  }
  return texts;
}

}  // namespace foretoken::test
