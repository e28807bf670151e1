// What a pass decided: the tokens that stand are delivered, and what was proposed is scored.
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "common/engine/target_engine.h"
#include "common/model/config.h"
#include "common/spec/acceptance.h"
#include "common/spec/finish.h"

namespace foretoken {
namespace {

TokenLogprobs logprobs_of(const Choice& choice, std::span<const TopLogprob> likeliest) {
  TokenLogprobs logprobs{.logprob = choice.logprob};
  for (const TopLogprob& top : likeliest) {
    logprobs.top_ids.push_back(top.token);
    logprobs.top_logprobs.push_back(top.logprob);
  }
  return logprobs;
}

Error no_token_may_follow(const Sequence& sequence) {
  const std::string_view grammar = constraint_key(sequence.params);
  const SamplingParams& params = sequence.params;
  if (grammar.empty() && params.logit_bias.empty() && params.bad_words.empty() &&
      params.min_tokens == 0)
    return {ErrorCode::kInternal,
            "no token can be chosen: the model's logits are not finite; `foretoken model compare` "
            "reads them"};
  if (grammar.empty())
    return {
        ErrorCode::kInvalidValue,
        "no token may follow: logit_bias, bad_words and min_tokens exclude the whole vocabulary",
        "logit_bias"};
  return {ErrorCode::kInvalidValue,
          "no token may follow: " + std::string(grammar) +
              ", logit_bias, bad_words and min_tokens exclude the whole vocabulary",
          std::string(grammar)};
}

}  // namespace

void TargetEngine::commit_slice(std::size_t slice, Sequence& sequence, TimePoint now) {
  const PlanSlice& plan = step_.plan().slices[slice];
  note_prefilled(sequence, plan.start, plan.n_known);
  if (plan.n_forced > 0) deliver_prompt(slice, sequence);
  if (plan.n_choices == 0) {
    step_.commit(slice, plan.n_known, sequence.text().tokens());
    if (const auto reason = sequence.end()) finish(sequence, *reason);
    return;
  }
  const std::uint32_t n_accepted = step_.n_accepted(slice);
  const Acceptance verdict{n_accepted, step_.chosen(slice).first(n_accepted + 1)};
  const std::uint32_t n_before = sequence.n_tokens();
  ++sequence.stats.n_steps;
  deliver(slice, sequence, verdict.committed, verdict.n_accepted);
  const std::uint32_t n_delivered = sequence.n_tokens() - n_before;
  step_.commit(slice, plan.n_known + std::min(verdict.n_accepted, n_delivered),
               sequence.text().tokens());
  note_round(sequence, verdict.n_accepted, n_delivered, now);
  sequence.is_decoding = true;
  output_.n_committed += n_delivered;
  committed_value_ += token_value(sequence) * n_delivered;
  undrafted_value_ += token_value(sequence) * n_undrafted(sequence, n_delivered);

  if (const auto reason = sequence.finish.reason()) return finish(sequence, *reason);
  if (n_delivered < verdict.committed.size()) return fail(sequence, no_token_may_follow(sequence));
  store_.drop_committed(sequence.id);
}

void TargetEngine::note_prefilled(Sequence& sequence, Position start, std::uint32_t n_rows) {
  const Position end = std::min<Position>(start + n_rows, sequence.n_prompt);
  if (end <= sequence.n_prefilled) return;  // after a preemption
  totals_.n_prompt_rows += end - std::max(start, sequence.n_prefilled);
  sequence.n_prefilled = end;
}

void TargetEngine::deliver_prompt(std::size_t slice, Sequence& sequence) {
  const auto choices = step_.forced(slice);
  wire::Tokens tokens{.position = sequence.next_forced};
  for (std::size_t i = 0; i < choices.size(); ++i) {
    tokens.ids.push_back(sequence.text().tokens()[sequence.next_forced++]);
    tokens.logprobs.push_back(logprobs_of(choices[i], step_.forced_top(slice, i)));
  }
  output_.prompts.push_back({sequence.id, std::move(tokens)});
}

// Token by token through the finish rules, as plain decoding would; what lies behind an end is
// dropped.
void TargetEngine::deliver(std::size_t slice,
                           Sequence& sequence,
                           std::span<const TokenId> committed,
                           std::uint32_t n_accepted) {
  wire::Tokens tokens{.position = sequence.n_tokens()};
  tokens.ids.reserve(committed.size());
  tokens.accepted.reserve(committed.size());
  const auto choices = step_.choices(slice);
  for (std::size_t i = 0; i < committed.size() && committed[i] >= 0; ++i) {
    tokens.ids.push_back(committed[i]);
    tokens.accepted.push_back(i < n_accepted ? 1 : 0);
    if (sequence.params.n_logprobs >= 0)
      tokens.logprobs.push_back(logprobs_of(choices[i], step_.top(slice, i)));
    if (sequence.commit(committed[i])) break;
  }
  if (!tokens.ids.empty()) output_.tokens.push_back({sequence.id, std::move(tokens)});
}

void TargetEngine::note_round(Sequence& sequence,
                              std::uint32_t n_accepted,
                              std::uint32_t n_delivered,
                              TimePoint now) {
  sequence.n_verified = static_cast<std::uint32_t>(sequence.path.size());
  sequence.n_accepted = n_accepted;
  note_proposals(sequence, store_.score(sequence.id, sequence.n_tokens() - n_delivered));
  note_lookups(sequence, std::min(n_accepted, n_delivered));
  output_.n_verified += sequence.n_verified;
  if (sequence.n_verified > 0) {
    const std::uint32_t n_kept = std::min(n_accepted, n_delivered);
    output_.n_accepted += n_kept;
    sequence.stats.spec.record_round(sequence.path, n_kept);
    sequence.stats.record_length(sequence.n_verified, n_kept);
    totals_.spec.record_round(sequence.path, n_kept);
  } else if (sequence.is_decoding && sequence.finish.n_remaining() > 0) {  // not the last token's
    const FallbackReason reason = why_plain(sequence, now);
    sequence.stats.spec.record_fallback(reason);
    totals_.spec.record_fallback(reason);
  }
}

void TargetEngine::note_proposals(Sequence& sequence, std::span<const ScoredToken> scored) {
  length_.observe_round(scored, sequence.odds);
  note_draft_tokens(scored);
  for (const ScoredToken& each : scored) {
    if (each.token.is_runner_up && !each.stood) continue;
    each.token.sources.for_each([&](ProposerKind kind) {
      ProposalTally& tally = totals_.proposals[static_cast<std::size_t>(kind)];
      ++(each.stood ? tally.n_right : tally.n_wrong);
    });
    if (each.token.sources.size() > 1) ++totals_.n_agreed;
  }
}

// A depth may have several tokens of a draft, of which one stands at most.
void TargetEngine::note_draft_tokens(std::span<const ScoredToken> scored) {
  for (std::size_t begin = 0, end = 0; begin < scored.size(); begin = end) {
    bool was_drafted = false, stood = false;
    for (; end < scored.size() && scored[end].depth == scored[begin].depth; ++end) {
      const PathToken& token = scored[end].token;
      if (token.is_runner_up || !token.sources.contains(ProposerKind::kDraft)) continue;
      was_drafted = true;
      stood = stood || scored[end].stood;
    }
    if (!was_drafted) continue;
    outcomes_.observe(scored[begin].depth, stood);
    if (scored[begin].depth == 0) budget_.observe_answer();
  }
}

}  // namespace foretoken
