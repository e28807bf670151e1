// What targets say of their sequences: how an attachment comes, follows, and goes.
#include <algorithm>
#include <iterator>

#include "common/engine/draft_attachment.h"
#include "common/spec/prefix_hash.h"

namespace foretoken {

DraftOutcome DraftEngine::attach(AttachRequest request, TimePoint now) {
  const auto at = attachments_.find(request.key);
  if (at != attachments_.end()) {
    if (request.lease < at->second->lease) {
      ++totals_.n_ignored;
      return Ignored{};
    }
    if (request.lease == at->second->lease) {
      const auto outcome = apply(*at->second,
                                 {.key = request.key,
                                  .lease = request.lease,
                                  .epoch = at->second->epoch,
                                  .from = 0,
                                  .tail = request.tokens,
                                  .prefix = request.prefix,
                                  .budget = request.budget},
                                 now);
      if (!std::holds_alternative<NeedOutcome>(outcome)) return outcome;
    }
    forget(at);
  }
  return attach_anew(request, now);
}

DraftOutcome DraftEngine::attach_anew(AttachRequest& request, TimePoint now) {
  const bool is_sound = !request.tokens.empty() && request.n_prompt > 0 &&
                        request.n_prompt <= request.tokens.size() &&
                        std::all_of(request.tokens.begin(), request.tokens.end(),
                                    [&](TokenId t) { return t >= 0 && t < n_ids_; }) &&
                        validate(request.params, n_ids_).ok();
  if (!is_sound) {
    ++totals_.n_ignored;
    return Ignored{};
  }
  if (prefix_hash_extend(request.root, request.tokens) != request.prefix) {
    ++totals_.n_needs;
    return NeedOutcome{.key = request.key,
                       .lease = request.lease,
                       .known = 0,
                       .prefix = request.root,
                       .reason = NeedReason::kMismatch};
  }
  if (attachments_.size() >= static_cast<std::size_t>(options_.max_sequences)) {
    expire(now);
    if (attachments_.size() >= static_cast<std::size_t>(options_.max_sequences)) {
      ++totals_.n_busy;
      return BusyOutcome{request.key, request.lease, options_.retry_after};
    }
  }
  const std::vector<TokenId> end_tokens =
      choosable(request.end_tokens.empty() ? eos_ids_ : request.end_tokens, n_ids_);
  auto attachment = std::make_unique<Attachment>(request, end_tokens);
  attachment->cache_name = SeqId{++n_opened_};
  attachment->turn = ++n_turns_;
  attachment->heard = now;
  attachment->budget = std::min(request.budget, options_.max_ahead);
  attachment->owes_answer = request.budget > 0;
  outgrow_if_due(*attachment);
  attachments_.emplace(request.key, std::move(attachment));
  return Applied{};
}

DraftOutcome DraftEngine::follow(const FollowRequest& request, TimePoint now) {
  const auto at = attachments_.find(request.key);
  if (at == attachments_.end() || at->second->lease < request.lease) {
    ++totals_.n_needs;  // the ATTACH of this lease was lost, or the attachment expired
    return NeedOutcome{.key = request.key, .lease = request.lease};
  }
  if (request.lease < at->second->lease || request.epoch < at->second->epoch) {
    ++totals_.n_ignored;
    return Ignored{};
  }
  return apply(*at->second, request, now);
}

NeedOutcome DraftEngine::need(const Attachment& attachment, NeedReason reason) {
  ++totals_.n_needs;
  return {.key = attachment.key,
          .lease = attachment.lease,
          .known = attachment.known,
          .prefix = attachment.prefix,
          .reason = reason};
}

// Nothing changes unless the whole record fits what is known.
DraftOutcome DraftEngine::apply(Attachment& attachment,
                                const FollowRequest& request,
                                TimePoint now) {
  attachment.heard = now;
  if (request.from > attachment.known) return need(attachment, NeedReason::kGap);
  const std::size_t n_old =
      std::min<std::size_t>(attachment.known - request.from, request.tail.size());
  if (!attachment.is_outgrown &&
      !std::equal(request.tail.begin(), request.tail.begin() + static_cast<std::ptrdiff_t>(n_old),
                  attachment.tokens.begin() + static_cast<std::ptrdiff_t>(request.from)))
    return need(attachment, NeedReason::kMismatch);
  const std::span<const TokenId> committed = request.tail.subspan(n_old);
  const bool reaches_known = request.from + request.tail.size() >= attachment.known;
  const bool is_sound = std::all_of(committed.begin(), committed.end(),
                                    [&](TokenId t) { return t >= 0 && t < n_ids_; });
  if (!is_sound ||
      (reaches_known && prefix_hash_extend(attachment.prefix, committed) != request.prefix))
    return need(attachment, NeedReason::kMismatch);

  if (attachment.owes_answer && attachment.has_guessed && request.epoch > attachment.epoch)
    attachment.overtaken = attachment.epoch;
  attachment.epoch = std::max(attachment.epoch, request.epoch);
  attachment.is_stuck = false;
  if (!committed.empty()) take_in(attachment, committed);
  attachment.prefix = reaches_known ? request.prefix : attachment.prefix;
  if (now < attachment.busy_until && request.budget > 0) {
    ++totals_.n_busy;
    return BusyOutcome{attachment.key, attachment.lease, attachment.busy_until - now};
  }
  if (!reaches_known) return Applied{};  // overtaken by a later one, whose budget stands
  attachment.budget = std::min(request.budget, options_.max_ahead);
  attachment.owes_answer = request.budget > 0;
  return Applied{};
}

// The chain as far as it agrees becomes committed; at the first difference chain and cache are cut,
// to the very token.
void DraftEngine::take_in(Attachment& attachment, std::span<const TokenId> committed) {
  if (attachment.is_outgrown) {
    attachment.known += static_cast<std::uint32_t>(committed.size());
    return;
  }
  const auto chain = attachment.chain();
  const auto differs =
      std::mismatch(committed.begin(), committed.end(), chain.begin(), chain.end());
  const auto n_agreed = static_cast<std::uint32_t>(differs.first - committed.begin());
  totals_.n_kept += n_agreed;
  if (n_agreed == committed.size()) {
    attachment.confidences.erase(attachment.confidences.begin(),
                                 attachment.confidences.begin() + n_agreed);
  } else {
    totals_.n_cut += chain.size() - n_agreed;
    const std::uint32_t n_valid = attachment.known + n_agreed;
    attachment.tokens.resize(n_valid);
    if (attachment.has_cache && kv_.length(attachment.cache_name) > n_valid)
      kv_.truncate(attachment.cache_name, n_valid);
    attachment.tokens.insert(attachment.tokens.end(), differs.first, committed.end());
    attachment.confidences.clear();
  }
  for (const TokenId token : committed) attachment.rules.commit(token);
  attachment.known += static_cast<std::uint32_t>(committed.size());
  outgrow_if_due(attachment);
}

void DraftEngine::outgrow_if_due(Attachment& attachment) {
  if (attachment.known < max_len_) return;
  drop_cache(attachment);
  attachment.is_outgrown = true;
  attachment.tokens = {};
  attachment.confidences = {};
}

void DraftEngine::detach(const DraftKey& key, Lease lease) {
  const auto at = attachments_.find(key);
  if (at != attachments_.end() && at->second->lease <= lease) forget(at);
}

void DraftEngine::detach_all(WorkerId target, Incarnation except) {
  for (auto at = attachments_.lower_bound({.target = target});
       at != attachments_.end() && at->first.target == target;) {
    const auto next = std::next(at);
    if (at->first.incarnation != except) forget(at);
    at = next;
  }
}

void DraftEngine::renew(WorkerId target, Incarnation incarnation, TimePoint now) {
  for (auto at = attachments_.lower_bound({.target = target, .incarnation = incarnation});
       at != attachments_.end() && at->first.target == target &&
       at->first.incarnation == incarnation;
       ++at)
    at->second->heard = now;
}

void DraftEngine::forget(Attachments::iterator at) {
  drop_cache(*at->second);
  attachments_.erase(at);
}

void DraftEngine::drop_cache(Attachment& attachment) {
  if (attachment.has_cache) kv_.close(attachment.cache_name);
  attachment.has_cache = false;
}

void DraftEngine::expire(TimePoint now) {
  for (auto at = attachments_.begin(); at != attachments_.end();) {
    const auto next = std::next(at);
    if (at->second->heard + options_.lease <= now) {
      ++totals_.n_expired;
      forget(at);
    }
    at = next;
  }
}

}  // namespace foretoken
