// What targets say of their sequences: how a sequence comes, follows, and goes.
#include <algorithm>
#include <iterator>
#include <limits>
#include <map>

#include "common/base/micros.h"
#include "common/engine/draft_engine.h"
#include "common/engine/leased_sequence.h"
#include "common/grammar/requested_grammar.h"
#include "common/spec/finish.h"
#include "common/spec/prefix_hash.h"

namespace foretoken {
namespace {

constexpr TokenId kAnyId = std::numeric_limits<TokenId>::max();

bool are_ids(std::span<const TokenId> tokens, TokenId n_ids) {
  return std::all_of(tokens.begin(), tokens.end(),
                     [&](TokenId token) { return token >= 0 && token < n_ids; });
}

// Any id is sound: the vocabulary may have tokens that the draft's model has no embedding for.
bool is_sound(const wire::Attach& attach) {
  return !attach.tokens.empty() && attach.n_prompt > 0 && attach.n_prompt <= attach.tokens.size() &&
         are_ids(attach.tokens, kAnyId) && validate(attach.params, 0).ok();
}

// Whether the model has an embedding for each token of the text and of its rules.
bool has_embeddings(const wire::Attach& attach, TokenId n_ids) {
  return are_ids(attach.tokens, n_ids) && validate(attach.params, n_ids).ok();
}

}  // namespace

DraftOutcome DraftEngine::attach(const TargetKey& from, wire::Attach attach, TimePoint now) {
  const auto at = sequences_.find({from, attach.seq});
  if (at != sequences_.end()) {
    if (attach.lease < at->second->lease) {
      ++totals_.n_ignored;
      return Ignored{};
    }
    if (attach.lease == at->second->lease) {
      if (!at->second->has_cache) at->second->is_fresh = true;  // its target waits for a prefill
      wire::ProposeRecord record{.seq = attach.seq,
                                 .lease = attach.lease,
                                 .epoch = at->second->epoch,
                                 .from = 0,
                                 .tail = std::move(attach.tokens),
                                 .prefix = attach.prefix,
                                 .budget = attach.budget};
      const auto outcome = apply(*at->second, record, now);
      if (!std::holds_alternative<wire::Need>(outcome)) return outcome;
      attach.tokens = std::move(record.tail);
    }
    forget(at);
  }
  return attach_anew(from, attach, now);
}

// Whether one more may be held.
bool DraftEngine::has_place(TimePoint now) {
  const auto most = static_cast<std::size_t>(options_.max_sequences);
  if (sequences_.size() >= most) expire(now);
  if (sequences_.size() >= most) forget_unnamed();
  return sequences_.size() < most;
}

DraftOutcome DraftEngine::attach_anew(const TargetKey& from, wire::Attach& attach, TimePoint now) {
  const bool sound = is_sound(attach), can_guess = sound && has_embeddings(attach, n_ids_);
  auto constraint = can_guess ? open_constraint(attach.params, options_.constraints.get())
                              : std::optional<Constraint>{};
  if (!sound || !constraint.ok()) {
    ++totals_.n_ignored;
    return Ignored{};
  }
  if (prefix_hash_extend(attach.root, attach.tokens) != attach.prefix) {
    ++totals_.n_needs;
    return mismatch_of(attach);
  }
  if (!has_place(now)) {
    ++totals_.n_busy;
    return busy_with(attach, options_.retry_after);
  }
  LeasedSequence& sequence = add_sequence({from, attach.seq}, attach, std::move(*constraint), now);
  if (!can_guess || sequence.chain.known() >= limits_.max_len) outgrow(sequence);
  return Applied{};
}

// ATTACH carries the first question.
LeasedSequence& DraftEngine::add_sequence(const DraftKey& key,
                                          wire::Attach& attach,
                                          std::optional<Constraint> constraint,
                                          TimePoint now) {
  const std::vector<TokenId> end_tokens =
      choosable(attach.end_tokens.empty() ? eos_ids_ : attach.end_tokens, n_ids_);
  auto sequence = std::make_unique<LeasedSequence>(
      key, attach,
      LeaseTerms{.limits = limits_, .end_tokens = end_tokens, .constraint = std::move(constraint)});
  sequence->cache_name = SeqId{++n_opened_};
  sequence->turn = pass_.next_turn();
  sequence->renewed = sequence->named = now;
  const auto ahead = run_ahead_.find(key.target);
  sequence->run_ahead = ahead == run_ahead_.end() ? options_.run_ahead : ahead->second;
  sequence->budget = std::min(attach.budget, limits_.max_ahead);
  sequence->owes_answer = attach.budget > 0;
  sequence->asked = now;
  return *sequences_.emplace(key, std::move(sequence)).first->second;
}

DraftOutcome DraftEngine::follow(const TargetKey& from,
                                 const wire::ProposeRecord& record,
                                 TimePoint now) {
  const auto at = sequences_.find({from, record.seq});
  if (at == sequences_.end() || at->second->lease < record.lease) {
    ++totals_.n_needs;  // the ATTACH of this lease was lost, or the sequence expired
    return wire::Need{.seq = record.seq, .lease = record.lease};
  }
  if (record.lease < at->second->lease || record.epoch < at->second->epoch) {
    ++totals_.n_ignored;
    return Ignored{};
  }
  return apply(*at->second, record, now);
}

wire::Need DraftEngine::need(const LeasedSequence& sequence, NeedReason reason) {
  ++totals_.n_needs;
  return {.seq = sequence.key.seq,
          .lease = sequence.lease,
          .known = sequence.chain.known(),
          .prefix = sequence.prefix,
          .reason = reason};
}

wire::DraftBusy DraftEngine::busy(const LeasedSequence& sequence, Duration retry_after) {
  ++totals_.n_busy;
  return {.seq = sequence.key.seq,
          .lease = sequence.lease,
          .retry_after_us = short_micros(retry_after)};
}

// What it read before went to others, and its guesses wait until a prompt's worth is read again.
bool DraftEngine::has_lost_cache(const LeasedSequence& sequence) const {
  if (sequence.is_fresh || sequence.has_cache || !sequence.can_grow()) return false;
  const PrefixHit hit = kv_.find_prefix(sequence.chain.text(), sequence.tenant_salt);
  return sequence.chain.known() > hit.n_tokens + kFewBehind;
}

// Nothing changes unless the whole record fits what is known.
DraftOutcome DraftEngine::apply(LeasedSequence& sequence,
                                const wire::ProposeRecord& record,
                                TimePoint now) {
  const std::span<const TokenId> tail(record.tail);
  sequence.renewed = sequence.named = now;
  if (record.from > sequence.chain.known()) return need(sequence, NeedReason::kGap);
  const std::size_t n_old =
      std::min<std::size_t>(sequence.chain.known() - record.from, tail.size());
  if (!sequence.chain.is_outgrown() &&
      !std::equal(tail.begin(), tail.begin() + static_cast<std::ptrdiff_t>(n_old),
                  sequence.chain.text().begin() + static_cast<std::ptrdiff_t>(record.from)))
    return need(sequence, NeedReason::kMismatch);
  const std::span<const TokenId> committed = tail.subspan(n_old);
  const bool reaches_known = record.from + tail.size() >= sequence.chain.known();
  if (!are_ids(committed, kAnyId) ||
      (reaches_known && prefix_hash_extend(sequence.prefix, committed) != record.prefix))
    return need(sequence, NeedReason::kMismatch);

  if (sequence.owes_answer && sequence.has_guessed && record.epoch > sequence.epoch) {
    sequence.overtaken = sequence.epoch;
    sequence.overtaken_asked = sequence.asked;
  }
  sequence.epoch = std::max(sequence.epoch, record.epoch);
  sequence.is_stuck = sequence.lacks_branch_room = false;
  if (!committed.empty()) take_in(sequence, committed);
  sequence.prefix = reaches_known ? record.prefix : sequence.prefix;
  if (now < sequence.busy_until && record.budget > 0)
    return busy(sequence, sequence.busy_until - now);
  if (!reaches_known) return Applied{};  // overtaken by a later one, whose budget stands
  sequence.budget = std::min(record.budget, limits_.max_ahead);
  sequence.owes_answer = record.budget > 0;
  sequence.asked = now;
  if (has_lost_cache(sequence)) return need(sequence, NeedReason::kEvicted);
  return Applied{};
}

// The chain as far as it agrees becomes committed; at the first difference chain and cache are cut,
// to the very token, unless a branch goes on from there.
void DraftEngine::take_in(LeasedSequence& sequence, std::span<const TokenId> committed) {
  DraftChain& chain = sequence.chain;
  if (!are_ids(committed, n_ids_)) outgrow(sequence);
  if (chain.is_outgrown()) return chain.commit(committed);
  branches_.observe(sequence, committed);
  std::uint32_t n_agreed = chain.n_agreed(committed);
  if (n_agreed < committed.size()) {
    const std::uint32_t n_void = chain.n_guesses() - n_agreed;
    if (const std::uint32_t n_own = branches_.take(sequence, n_agreed, committed[n_agreed])) {
      totals_.n_cut += n_void;
      totals_.n_drafted += n_own;
      n_agreed = chain.n_agreed(committed);
    }
  }
  totals_.n_kept += n_agreed;
  if (n_agreed == committed.size())
    branches_.drop(sequence, chain.known() + n_agreed);
  else
    cut(sequence, n_agreed);
  chain.commit(committed);
  for (const TokenId token : committed) sequence.rules.commit(token);
  if (chain.known() >= limits_.max_len) outgrow(sequence);
}

// The guesses from n_agreed on are void, with their cache and all branches.
void DraftEngine::cut(LeasedSequence& sequence, std::uint32_t n_agreed) {
  branches_.drop(sequence);
  totals_.n_cut += sequence.chain.n_guesses() - n_agreed;
  const Position n_valid = sequence.chain.known() + n_agreed;
  if (sequence.has_cache && kv_.length(sequence.cache_name) > n_valid)
    kv_.truncate(sequence.cache_name, n_valid);
}

// From now on it gets empty answers, so that its target does not wait.
void DraftEngine::outgrow(LeasedSequence& sequence) {
  branches_.drop_cache(sequence);
  sequence.chain.outgrow();
}

void DraftEngine::detach(const TargetKey& from, const wire::CloseSequence& close) {
  const auto at = sequences_.find({from, close.seq});
  if (at != sequences_.end() && at->second->lease <= close.lease) forget(at);
}

void DraftEngine::detach_all(WorkerId target, Incarnation except) {
  std::erase_if(run_ahead_, [&](const auto& known) {
    return known.first.target == target && known.first.incarnation != except;
  });
  for (auto at = sequences_.lower_bound({.target = {.target = target}});
       at != sequences_.end() && at->first.target.target == target;) {
    const auto next = std::next(at);
    if (at->first.target.incarnation != except) forget(at);
    at = next;
  }
}

void DraftEngine::set_run_ahead(const TargetKey& target, std::optional<std::uint32_t> n_tokens) {
  if (n_tokens)
    run_ahead_[target] = *n_tokens;
  else
    run_ahead_.erase(target);
  for (auto at = sequences_.lower_bound({.target = target});
       at != sequences_.end() && at->first.target == target; ++at)
    at->second->run_ahead = n_tokens.value_or(options_.run_ahead);
}

// Of a draft that was stopped the leases may have run out meanwhile: these stay ended.
void DraftEngine::renew(const TargetKey& target, TimePoint now) {
  expire(now);
  for (auto at = sequences_.lower_bound({.target = target});
       at != sequences_.end() && at->first.target == target; ++at)
    at->second->renewed = now;
}

void DraftEngine::forget(LeasedSequences::iterator at) {
  branches_.drop_cache(*at->second);
  sequences_.erase(at);
}

// The end of a sequence may have been lost, while its target goes on and renews all its leases: it
// has named others since. A target in a long pass names none.
void DraftEngine::forget_unnamed() {
  std::map<TargetKey, TimePoint> newest;
  for (const auto& [key, sequence] : sequences_)
    newest[key.target] = std::max(newest[key.target], sequence->named);
  auto longest = sequences_.end();
  for (auto at = sequences_.begin(); at != sequences_.end(); ++at)
    if (at->second->named + options_.lease <= newest[at->first.target] &&
        (longest == sequences_.end() || at->second->named < longest->second->named))
      longest = at;
  if (longest == sequences_.end()) return;
  ++totals_.n_expired;
  forget(longest);
}

void DraftEngine::expire(TimePoint now) {
  for (auto at = sequences_.begin(); at != sequences_.end();) {
    const auto next = std::next(at);
    if (at->second->renewed + options_.lease <= now) {
      ++totals_.n_expired;
      forget(at);
    }
    at = next;
  }
}

}  // namespace foretoken
