#include "tests/support/faulty_proposers.h"

#include <algorithm>
#include <utility>

#include "common/spec/prefix_hash.h"

namespace foretoken {

void Liar::ask(std::span<const Ask> asks) {
  for (const Ask& ask : asks) {
    if (rng_() % 8 == 0) continue;
    const CommittedTokens& text = *texts_.at(ask.seq);
    Proposal lie{.base = text.size(), .prefix = text.prefix(), .source = kind()};
    const std::size_t n = rng_() % 12;
    for (std::size_t i = 0; i < n; ++i) {
      lie.tokens.push_back(static_cast<TokenId>(rng_() % static_cast<std::uint64_t>(vocab_size_)));
      lie.confidences.push_back(static_cast<std::uint8_t>(rng_()));
      if (rng_() % 2 == 0) continue;
      lie.parents.resize(i + 1, kParentIsBase);
    }
    lie.parents.resize(lie.parents.empty() ? 0 : n, kParentIsBase);
    switch (rng_() % 16) {
      case 0:
        lie.base += 5;
        break;
      case 1:
        lie.prefix ^= 1;
        break;
      case 2:
        if (n > 0) lie.tokens[0] = vocab_size_ + 3;
        break;
      case 3:
        if (n > 0) lie.tokens[n - 1] = -1;
        break;
      case 4:
        lie.confidences.resize(n + 1);
        break;
      case 5:
        lie.parents.assign(n, static_cast<std::uint16_t>(n));
        break;
      default:
        break;
    }
    said_.emplace_back(ask.seq, std::move(lie));
  }
}

void Liar::collect(TimePoint, ProposalStore& into) {
  for (const auto& [seq, lie] : said_) into.insert(seq, lie);
  said_.clear();
}

void LinkedDraft::open(const Opening& opening) {
  Known known{.params = opening.params, .n_prompt = opening.n_prompt, .text = &opening.text};
  Known& kept = sequences_[opening.seq] = std::move(known);
  tell(opening.seq, kept);
}

void LinkedDraft::ask(std::span<const Ask> asks) {
  for (const Ask& ask : asks) {
    Known& known = sequences_.at(ask.seq);
    known.budget = ask.budget;
    known.epoch = Epoch{known.epoch.value + 1};
    tell(ask.seq, known);
  }
}

void LinkedDraft::tell(SeqId seq, Known& known) {
  const Position from = known.needs_attach ? 0 : known.confirmed;
  const auto tail = known.text->from(from);
  if (std::exchange(known.needs_attach, false))
    to_draft_.send(wire::Attach{.seq = seq,
                                .lease = known.lease,
                                .params = known.params,
                                .n_prompt = known.n_prompt,
                                .tokens = {tail.begin(), tail.end()},
                                .prefix = known.text->prefix(),
                                .budget = known.budget,
                                .root = root_});
  else
    to_draft_.send(wire::ProposeRecord{.seq = seq,
                                       .lease = known.lease,
                                       .epoch = known.epoch,
                                       .from = from,
                                       .tail = {tail.begin(), tail.end()},
                                       .prefix = known.text->prefix(),
                                       .budget = known.budget});
}

void LinkedDraft::deliver(const ToDraft& message, TimePoint now, ToTarget& answers) {
  if (const auto* close = std::get_if<wire::CloseSequence>(&message))
    return engine_.detach(kTarget, *close);
  const auto* attach = std::get_if<wire::Attach>(&message);
  const DraftOutcome outcome =
      attach != nullptr ? engine_.attach(kTarget, *attach, now)
                        : engine_.follow(kTarget, std::get<wire::ProposeRecord>(message), now);
  if (const auto* need = std::get_if<wire::Need>(&outcome)) answers.needs.push_back(*need);
}

// What has reached the draft, and what it does then.
void LinkedDraft::attend() {
  for (const ToDraft& message : to_draft_.receive()) deliver(message, now_, said_);
  for (int i = 0; i < 64 && engine_.has_work(); ++i) {
    const DraftOutput& output = engine_.step(now_);
    engine_.record_step_time(std::chrono::microseconds(50 + 997 * ++n_steps_ % 5000));
    for (const ReadyProposal& ready : output.proposals) said_.proposals.push_back(ready.record);
  }
}

void LinkedDraft::collect(TimePoint now, ProposalStore& into) {
  now_ = now;
  attend();
  to_target_.send(std::exchange(said_, {}));
  for (const ToTarget& message : to_target_.receive()) {
    for (const wire::ProposalRecord& ready : message.proposals) {
      const auto at = sequences_.find(ready.seq);
      if (at == sequences_.end() || ready.lease != at->second.lease) continue;
      at->second.confirmed = std::max(at->second.confirmed, ready.base);
      Epoch& answered = answered_[ready.seq];
      answered = std::max(answered, ready.epoch);
      into.insert(ready.seq, {.base = ready.base,
                              .prefix = ready.prefix,
                              .tokens = ready.tokens,
                              .parents = ready.parents,
                              .confidences = ready.confidence,
                              .source = kind()});
    }
    for (const wire::Need& need : message.needs) {
      const auto at = sequences_.find(need.seq);
      if (at == sequences_.end() || need.lease != at->second.lease) continue;
      Known& known = at->second;
      known.confirmed = std::min(known.confirmed, need.known);
      known.needs_attach = need.reason != NeedReason::kGap;
      if (need.reason == NeedReason::kMismatch) known.lease = Lease{known.lease.value + 1};
      known.epoch = Epoch{known.epoch.value + 1};
      tell(need.seq, known);
    }
  }
}

void LinkedDraft::close(SeqId seq) {
  const auto at = sequences_.find(seq);
  if (at == sequences_.end()) return;
  to_draft_.send(wire::CloseSequence{.seq = seq, .lease = at->second.lease});
  sequences_.erase(at);
  answered_.erase(seq);
}

DraftOutlook LinkedDraft::outlook(SeqId seq, TimePoint) const {
  const auto at = sequences_.find(seq);
  if (at == sequences_.end()) return {};
  const auto answered = answered_.find(seq);
  const bool is_answered = answered != answered_.end() && answered->second >= at->second.epoch;
  return {.readiness = DraftReadiness::kReady,
          .is_under_way = at->second.budget > 0 && !is_answered,
          .arrives_in = std::chrono::microseconds(100)};
}

}  // namespace foretoken
