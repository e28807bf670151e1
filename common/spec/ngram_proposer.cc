#include "common/spec/ngram_proposer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/base/majority_walk.h"

namespace foretoken {
namespace {

// Tokens proposed for each that agreed: a short match says little about what is far ahead.
constexpr std::size_t kMostOfMatch = 2;

}  // namespace

void NgramProposer::open(const Opening& opening) {
  Indexed indexed{.text = &opening.text, .index = SuffixIndex(config_.max_match)};
  indexed.index.extend(opening.text.tokens());
  texts_.insert_or_assign(opening.seq, std::move(indexed));
}

void NgramProposer::ask(std::span<const Ask> asks) {
  for (const Ask& ask : asks) {
    const auto found = texts_.find(ask.seq);
    if (found == texts_.end()) continue;
    const std::span<const TokenId> text = found->second.text->tokens();
    SuffixIndex& index = found->second.index;
    index.extend(text);
    if (ask.budget == 0) continue;
    Proposal proposal = look_up(found->second, ask.budget);
    if (!proposal.tokens.empty()) ready_.add(ask.seq, std::move(proposal));
  }
}

Proposal NgramProposer::look_up(const Indexed& indexed, std::uint32_t budget) const {
  const std::span<const TokenId> text = indexed.text->tokens();
  Proposal proposal{.base = static_cast<Position>(text.size()),
                    .prefix = indexed.text->prefix(),
                    .tokens = {},
                    .parents = {},
                    .confidences = {},
                    .source = kind()};
  const std::vector<SuffixIndex::Match> places = indexed.index.longest(text, text);
  if (places.empty() || places[0].length < config_.min_match) return proposal;
  const std::uint32_t length = places[0].length;
  // Past the end of the text it repeats what was just walked.
  const auto next_of = [&](std::size_t place, const std::vector<TokenId>& walked) {
    const std::size_t at = places[place].next + walked.size();
    return at < text.size() ? text[at] : walked[at - text.size()];
  };
  Walked walked = majority_walk(
      places.size(), {.n_tokens = std::min<std::size_t>(budget, kMostOfMatch * length)}, next_of);
  for (std::uint32_t i = 0; i < walked.tokens.size(); ++i)
    proposal.confidences.push_back(lookup_confidence(length + i, walked.shares[i]));
  proposal.tokens = std::move(walked.tokens);
  return proposal;
}

void NgramProposer::close(SeqId seq) {
  texts_.erase(seq);
  ready_.forget(seq);
}

}  // namespace foretoken
