#include "common/engine/sequence.h"

#include <algorithm>

#include "common/engine/scheduler.h"

namespace foretoken {
namespace {

// A token more takes no step of a draft where a source has its text at hand.
std::uint32_t max_proposals_of(const OpenRequest& request) {
  ProposerSet others = request.proposers.sources();
  others.remove(ProposerKind::kDraft);
  const bool has_own =
      request.draft_len > 0 && request.length == LengthMode::kAdaptive && !others.empty();
  return std::min(has_own ? std::max(request.draft_len, request.lookup_len) : request.draft_len,
                  kMaxDraftTokens);
}

}  // namespace

Sequence::Sequence(OpenRequest request, SequenceSetup setup, TimePoint now)
    : id(request.seq),
      params(std::move(request.params)),
      proposers(request.draft_len > 0 ? request.proposers.sources() : ProposerSet{}),
      draft_len(std::min(request.draft_len, kMaxDraftTokens)),
      max_proposals(max_proposals_of(request)),
      length(request.length),
      deadline(request.deadline),
      turn(turn_of(now, request.priority)),
      tenant_salt(request.tenant_salt),
      flow(request.flow),
      flow_weight(request.flow_weight),
      committed(std::make_shared<CommittedTokens>(setup.root, std::move(request.prompt))),
      n_prompt(n_tokens()),
      rules(params, setup.eos_ids, text().tokens(), std::move(setup.constraint)),
      finish(params, setup.eos_ids, n_prompt, setup.max_model_len),
      prediction(std::move(request.prediction)) {
  // The first token follows on nothing.
  next_forced = params.n_prompt_logprobs < 0
                    ? n_prompt
                    : std::clamp<Position>(request.prompt_logprobs_from, 1, n_prompt);
  stats.n_prompt = n_prompt;
  stats.draft_len = max_proposals;
  stats.opened = now;
  for (const TokenId token : request.resume) {
    if (finish.reason()) break;  // the engine refuses what follows an end
    commit(token);
  }
}

std::uint32_t Sequence::proposal_cap() const {
  const std::uint32_t remaining = finish.n_remaining();
  return remaining <= 1 ? 0 : std::min(max_proposals, remaining - 1);
}

void Sequence::limit(std::vector<PathToken>& proposals) const {
  if (proposals.size() <= draft_len) return;
  const auto is_the_drafts_alone = [](const PathToken& token) {
    return token.sources == ProposerSet{ProposerKind::kDraft};
  };
  const auto from = proposals.begin() + draft_len;
  proposals.erase(std::find_if(from, proposals.end(), is_the_drafts_alone), proposals.end());
}

std::optional<FinishReason> Sequence::commit(TokenId token) {
  committed->append(token);
  rules.commit(token);
  ++stats.n_output;
  return finish.on_token(token, rules.is_complete());
}

void insert_in_turn(std::vector<Sequence*>& list, Sequence* sequence) {
  const auto goes_before = [](const Sequence* a, const Sequence* b) {
    return a->turn != b->turn ? a->turn < b->turn : a->arrival < b->arrival;
  };
  list.insert(std::upper_bound(list.begin(), list.end(), sequence, goes_before), sequence);
}

}  // namespace foretoken
