#include "services/draft/board_reader.h"

#include <algorithm>

#include "common/wire/limits.h"

namespace foretoken {

static_assert(wire::kMaxCardBytes == VerdictBoard::kMostCard);

wire::BoardReply BoardReader::open(const TargetKey& target, const wire::BoardOffer& offer) {
  drop(target);
  wire::BoardReply reply{.token = offer.token};
  std::shared_ptr<BoardView> view;
  if (offer.card.empty() || offer.card.size() > wire::kMaxCardBytes)
    reply.reason = "its card has " + std::to_string(offer.card.size()) + " bytes; 1 to " +
                   std::to_string(wire::kMaxCardBytes) + " can be one";
  else if (!open_)
    reply.reason = "this draft reads no board";
  else
    view = open_(std::as_bytes(std::span(offer.card)), reply.reason);
  reply.opened = view != nullptr;
  if (view != nullptr) views_.emplace(target, std::move(view));
  return reply;
}

// What stands on a board is judged on the device; here, that there is such a place.
void BoardReader::run_ahead(const TargetKey& target, const wire::RunAhead& ahead) {
  const auto view = views_.find(target);
  for (const wire::RunAheadRecord& record : ahead.records) {
    if (view == views_.end() || record.entry < 0 || record.entry >= view->second->n_entries() ||
        record.tag == 0 || record.n_drafted > kMaxDraftTokens) {
      ++counters_.refused;
      continue;
    }
    const bool used = engine_.expect({.key = {target.first, target.second, record.seq},
                                      .lease = record.lease,
                                      .base = record.base,
                                      .prefix = record.prefix,
                                      .n_drafted = record.n_drafted,
                                      .drafted = record.drafted,
                                      .entry = record.entry,
                                      .tag = record.tag,
                                      .budget = std::min(record.budget, kMaxDraftTokens),
                                      .board = view->second});
    ++(used ? counters_.used : counters_.useless);
  }
}

}  // namespace foretoken
