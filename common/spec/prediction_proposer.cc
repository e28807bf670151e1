#include "common/spec/prediction_proposer.h"

#include <algorithm>

#include "common/base/majority_walk.h"

namespace foretoken {

void PredictionProposer::open(const Opening& opening) {
  Text text{.committed = &opening.text,
            .n_prompt = opening.n_prompt,
            .prediction = {opening.prediction.begin(), opening.prediction.end()},
            .index = SuffixIndex(config_.max_match),
            .known = opening.n_prompt,
            .next = 0,
            // The client says that the answer begins so: worth as much as a good match.
            .agreed = config_.max_match};
  text.index.extend(text.prediction);
  texts_.insert_or_assign(opening.seq, std::move(text));
}

// One more token of the answer.
void PredictionProposer::follow(Text& text) const {
  const TokenId token = text.committed->tokens()[text.known++];
  if (text.agreed > 0 && text.next < text.prediction.size() &&
      text.prediction[text.next] == token) {
    ++text.next;
    ++text.agreed;
    return;
  }
  const std::uint32_t n_recent = std::min(text.known - text.n_prompt, config_.max_match);
  const auto recent = text.committed->tokens().first(text.known).last(n_recent);
  // Beyond the token that was not said: a replacement is likelier than the same passage once more.
  const SuffixIndex::Match match = text.index.find(text.prediction, recent, text.next + 1);
  text.agreed = match.length >= config_.min_match ? match.length : 0;
  if (text.agreed > 0) text.next = match.next;
}

void PredictionProposer::ask(std::span<const Ask> asks) {
  for (const Ask& ask : asks) {
    const auto found = texts_.find(ask.seq);
    if (found == texts_.end()) continue;
    Text& text = found->second;
    while (text.known < text.committed->size()) follow(text);
    const auto rest = std::span<const TokenId>(text.prediction).subspan(text.next);
    const std::size_t n = std::min<std::size_t>(ask.budget, rest.size());
    if (text.agreed == 0 || n == 0) continue;
    Proposal proposal{.base = text.known,
                      .prefix = text.committed->prefix(),
                      .tokens = {},
                      .parents = {},
                      .confidences = {},
                      .source = kind()};
    proposal.tokens.assign(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(n));
    for (std::size_t i = 0; i < n; ++i)
      proposal.confidences.push_back(
          lookup_confidence(text.agreed + static_cast<std::uint32_t>(i), 1));
    ready_.add(ask.seq, std::move(proposal));
  }
}

void PredictionProposer::close(SeqId seq) {
  texts_.erase(seq);
  ready_.forget(seq);
}

}  // namespace foretoken
