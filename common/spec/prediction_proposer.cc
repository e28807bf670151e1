#include "common/spec/prediction_proposer.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/spec/ngram_proposer.h"

namespace foretoken {

void PredictionProposer::open(const Opening& opening) {
  Text text{.prediction = SuffixIndex(config_.max_match),
            .recent = {},
            .known = static_cast<Position>(opening.prompt.size()),
            .next = 0,
            // The client says that the answer begins so: worth as much as a good match.
            .agreed = config_.max_match};
  for (const TokenId token : opening.prediction) text.prediction.append(token);
  texts_.insert_or_assign(opening.seq, std::move(text));
}

void PredictionProposer::follow(Text& text, TokenId token) const {
  text.recent.push_back(token);
  if (text.recent.size() > config_.max_match) text.recent.erase(text.recent.begin());
  const auto predicted = text.prediction.text();
  if (text.agreed > 0 && text.next < predicted.size() && predicted[text.next] == token) {
    ++text.next;
    ++text.agreed;
    return;
  }
  // Beyond the token that was not said: a replacement is likelier than the same passage once more.
  const SuffixIndex::Match match = text.prediction.find(text.recent, text.next + 1);
  text.agreed = match.length >= config_.min_match ? match.length : 0;
  if (text.agreed > 0) text.next = match.next;
}

void PredictionProposer::ask(std::span<const Ask> asks) {
  for (const Ask& ask : asks) {
    const auto found = texts_.find(ask.seq);
    if (found == texts_.end()) continue;
    Text& text = found->second;
    FORETOKEN_CHECK(ask.from <= text.known, "a tail begins where the text ends, or earlier");
    for (std::size_t i = text.known - ask.from; i < ask.tail.size(); ++i, ++text.known)
      follow(text, ask.tail[i]);
    const auto rest = text.prediction.text().subspan(text.next);
    const std::size_t n = std::min<std::size_t>(ask.budget, rest.size());
    if (text.agreed == 0 || n == 0) continue;
    Proposal proposal{.base = text.known,
                      .prefix = ask.prefix,
                      .tokens = {},
                      .parents = {},
                      .confidences = {},
                      .source = kind()};
    proposal.tokens.assign(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(n));
    for (std::size_t i = 0; i < n; ++i)
      proposal.confidences.push_back(match_confidence(text.agreed + static_cast<std::uint32_t>(i)));
    ready_.add(ask.seq, std::move(proposal));
  }
}

void PredictionProposer::close(SeqId seq) {
  texts_.erase(seq);
  ready_.forget(seq);
}

}  // namespace foretoken
