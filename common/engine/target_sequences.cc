// How sequences come to a target and leave it.
#include <algorithm>
#include <string>
#include <utility>

#include "common/engine/target_engine.h"
#include "common/grammar/requested_grammar.h"
#include "common/model/config.h"
#include "common/spec/finish.h"

namespace foretoken {

Result<void> TargetEngine::admissible(const OpenRequest& request) const {
  if (draining_)
    return Error{ErrorCode::kDraining, "this target is about to stop and takes no new requests"};
  if (sequences_.contains(request.seq))
    return Error{ErrorCode::kInvalidRequest,
                 "sequence " + std::to_string(request.seq.value) + " is open already"};
  if (sequences_.size() >= static_cast<std::size_t>(options_.max_running) +
                               static_cast<std::size_t>(options_.max_waiting))
    return Error{ErrorCode::kQueueFull,
                 std::to_string(running_.size()) + " requests run and " +
                     std::to_string(waiting_.size()) + " wait; the limit is " +
                     std::to_string(options_.max_running) + " and " +
                     std::to_string(options_.max_waiting) + " (limits.max_waiting)"};
  if (request.prompt.empty())
    return Error{ErrorCode::kInvalidValue, "the prompt has no tokens", "prompt"};
  const std::size_t n_tokens = request.prompt.size() + request.resume.size();
  // An answer that had filled the context, and whose end was lost, may be resumed.
  if (request.prompt.size() >= options_.max_model_len || n_tokens > options_.max_model_len)
    return Error{ErrorCode::kContextLengthExceeded,
                 "prompt has " + std::to_string(n_tokens) + " tokens; the limit is " +
                     std::to_string(options_.max_model_len - 1) +
                     " (model.max_model_len less one for the answer)",
                 "prompt"};
  for (const auto* tokens : {&request.prompt, &request.resume})
    for (const TokenId token : *tokens)
      if (token < 0 || token >= n_ids())
        return Error{ErrorCode::kInvalidValue,
                     "prompt has token id " + std::to_string(token) + "; the vocabulary has " +
                         std::to_string(n_ids()) + " tokens",
                     "prompt"};
  return validate(request.params, n_ids());
}

Result<std::shared_ptr<const CommittedTokens>> TargetEngine::open(OpenRequest request,
                                                                  TimePoint now) {
  if (auto admitted = admissible(request); !admitted.ok()) {
    ++totals_.n_refused;
    return admitted.error();
  }
  const std::vector<TokenId> end_tokens = choosable(
      request.end_tokens.empty() ? model_.config().eos_token_ids : request.end_tokens, n_ids());
  auto constraint = open_constraint(request.params, options_.constraints.get());
  if (!constraint.ok()) {
    ++totals_.n_refused;
    return constraint.error();
  }
  const std::size_t n_given = request.prompt.size() + request.resume.size();
  auto owned = std::make_unique<Sequence>(std::move(request),
                                          SequenceSetup{.root = options_.prefix_root,
                                                        .eos_ids = end_tokens,
                                                        .max_model_len = options_.max_model_len,
                                                        .constraint = std::move(*constraint)},
                                          now);
  Sequence& sequence = *owned;
  if (sequence.n_tokens() != n_given) {
    ++totals_.n_refused;
    return Error{ErrorCode::kInvalidRequest, "the resumed answer goes on after its end", "resume"};
  }
  ++totals_.n_opened;
  sequence.arrival = n_arrived_++;
  sequences_.emplace(sequence.id, std::move(owned));
  store_.open(sequence.id, sequence.text());
  std::shared_ptr<const CommittedTokens> text = sequence.committed;
  insert_in_turn(waiting_, &sequence);
  if (running_.size() < static_cast<std::size_t>(options_.max_running)) is_prefilling_ = true;
  if (const auto reason = sequence.end()) finish(sequence, *reason);
  return text;
}

// On admission, before the first rows: a draft prefills while the target does, and one that serves
// many is spared the prompts that still wait.
void TargetEngine::open_proposers(Sequence& sequence) {
  const std::vector<TokenId> prediction = std::move(sequence.prediction);
  sequence.prediction.clear();
  if (sequence.proposal_cap() == 0) return;
  const std::uint64_t salt = sequence.tenant_salt;
  sequence.lookups = LookupGate(lookup_gains_.of(salt), lookup_gains_.n_unasked(salt));
  const bool are_drafts_asked = !is_gated(sequence) || gate_.asking() == DraftingGate::Asking::kAll;
  Opening opening{.seq = sequence.id,
                  .text = sequence.text(),
                  .n_prompt = sequence.n_prompt,
                  .params = sequence.params,
                  .prediction = prediction,
                  .tenant_salt = sequence.tenant_salt};
  sequence.proposers.for_each([&](ProposerKind kind) {
    // The gate is of drafts: a memory keeps the text for others, however seldom it is asked.
    opening.is_asked_soon = kind != ProposerKind::kDraft || are_drafts_asked;
    if (Proposer* proposer = proposer_of(kind)) proposer->open(opening);
  });
}

bool TargetEngine::close(SeqId seq, CloseReason reason) {
  const auto at = sequences_.find(seq);
  if (at == sequences_.end()) return false;
  finish(*at->second, reason == CloseReason::kStop       ? FinishReason::kStop
                      : reason == CloseReason::kDeadline ? FinishReason::kDeadline
                                                         : FinishReason::kCancelled);
  return true;
}

std::optional<DoneEvent> TargetEngine::take_done(SeqId seq) {
  const auto at = std::ranges::find(ended_, seq, &DoneEvent::seq);
  if (at == ended_.end()) return std::nullopt;
  DoneEvent event = std::move(*at);
  ended_.erase(at);
  return event;
}

void TargetEngine::finish(Sequence& sequence, FinishReason reason) {
  const TokenId stop_token = sequence.finish.ended_by_token() ? sequence.text().back() : -1;
  const SeqId seq = sequence.id;
  ended_.push_back(
      {.seq = seq, .reason = reason, .stop_token = stop_token, .stats = release(sequence)});
  ++totals_.n_done;
}

void TargetEngine::fail(Sequence& sequence, Error error) {
  const SeqId seq = sequence.id;
  broken_.push_back({.seq = seq, .error = std::move(error), .stats = release(sequence)});
  ++totals_.n_failed;
}

// Forgets a sequence everywhere; its reservation, if it had one, has been settled.
SequenceStats TargetEngine::release(Sequence& sequence) {
  const SeqId seq = sequence.id;
  if (sequence.is_running) kv_.close(seq);
  std::erase(sequence.is_running ? running_ : waiting_, &sequence);
  if (running_.empty()) is_next_at_once_ = false;
  store_.close(seq);
  note_last_lookup(sequence);
  sequence.proposers.for_each([&](ProposerKind kind) {
    if (Proposer* proposer = proposer_of(kind)) proposer->close(seq);
  });
  SequenceStats stats = sequence.stats;
  sequences_.erase(seq);
  return stats;
}

}  // namespace foretoken
