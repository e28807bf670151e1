#include "common/spec/ngram_proposer.h"

#include <algorithm>

#include "common/base/check.h"

namespace foretoken {

// L / (L + 1.5), at most 0.94: one token 0.4, two 0.57, four 0.73, eight 0.84. Measured acceptance
// takes over soon.
std::uint8_t match_confidence(std::uint32_t match_length) {
  const double length = match_length;
  return static_cast<std::uint8_t>(std::min(240.0, 255.0 * length / (length + 1.5)));
}

void NgramProposer::open(const Opening& opening) {
  SuffixIndex text(config_.max_match);
  for (const TokenId token : opening.prompt) text.append(token);
  texts_.insert_or_assign(opening.seq, std::move(text));
}

void NgramProposer::ask(std::span<const Ask> asks) {
  for (const Ask& ask : asks) {
    const auto found = texts_.find(ask.seq);
    if (found == texts_.end()) continue;
    SuffixIndex& text = found->second;
    const std::size_t known = text.text().size();
    FORETOKEN_CHECK(ask.from <= known, "a tail begins where the text ends, or earlier");
    for (std::size_t i = known - ask.from; i < ask.tail.size(); ++i) text.append(ask.tail[i]);
    if (ask.budget == 0) continue;
    const SuffixIndex::Match match = text.find(text.text());
    if (match.length < std::max(config_.min_match, 1u)) continue;
    Proposal proposal{.base = static_cast<Position>(text.text().size()),
                      .prefix = ask.prefix,
                      .tokens = {},
                      .parents = {},
                      .confidences = {},
                      .source = kind()};
    // The text repeats from match.next on; past its end it repeats what was just proposed.
    for (std::uint32_t i = 0; i < ask.budget; ++i) {
      const std::size_t at = match.next + i;
      const auto n = text.text().size();
      proposal.tokens.push_back(at < n ? text.text()[at] : proposal.tokens[at - n]);
      proposal.confidences.push_back(match_confidence(match.length + i));
    }
    ready_.add(ask.seq, std::move(proposal));
  }
}

void NgramProposer::close(SeqId seq) {
  texts_.erase(seq);
  ready_.forget(seq);
}

}  // namespace foretoken
