// What targets say of their sequences: how an attachment comes, follows, and goes.
#include <algorithm>
#include <iterator>

#include "common/base/micros.h"
#include "common/engine/draft_attachment.h"
#include "common/spec/prefix_hash.h"

namespace foretoken {

DraftOutcome DraftEngine::attach(const TargetKey& from, wire::Attach attach, TimePoint now) {
  const auto at = attachments_.find({from, attach.seq});
  if (at != attachments_.end()) {
    if (attach.lease < at->second->lease) {
      ++totals_.n_ignored;
      return Ignored{};
    }
    if (attach.lease == at->second->lease) {
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

DraftOutcome DraftEngine::attach_anew(const TargetKey& from, wire::Attach& attach, TimePoint now) {
  const bool is_sound = !attach.tokens.empty() && attach.n_prompt > 0 &&
                        attach.n_prompt <= attach.tokens.size() &&
                        std::all_of(attach.tokens.begin(), attach.tokens.end(),
                                    [&](TokenId t) { return t >= 0 && t < n_ids_; }) &&
                        validate(attach.params, n_ids_).ok();
  if (!is_sound) {
    ++totals_.n_ignored;
    return Ignored{};
  }
  if (prefix_hash_extend(attach.root, attach.tokens) != attach.prefix) {
    ++totals_.n_needs;
    return wire::Need{.seq = attach.seq,
                      .lease = attach.lease,
                      .known = 0,
                      .prefix = attach.root,
                      .reason = NeedReason::kMismatch};
  }
  if (attachments_.size() >= static_cast<std::size_t>(options_.max_sequences)) {
    expire(now);
    if (attachments_.size() >= static_cast<std::size_t>(options_.max_sequences)) {
      ++totals_.n_busy;
      return wire::DraftBusy{.seq = attach.seq,
                             .lease = attach.lease,
                             .retry_after_us = short_micros(options_.retry_after)};
    }
  }
  const DraftKey key{from, attach.seq};
  const std::vector<TokenId> end_tokens =
      choosable(attach.end_tokens.empty() ? eos_ids_ : attach.end_tokens, n_ids_);
  auto attachment = std::make_unique<Attachment>(key, attach, end_tokens);
  attachment->cache_name = SeqId{++n_opened_};
  attachment->turn = ++n_turns_;
  attachment->heard = now;
  attachment->budget = std::min(attach.budget, options_.max_ahead);
  attachment->owes_answer = attach.budget > 0;
  outgrow_if_due(*attachment);
  attachments_.emplace(key, std::move(attachment));
  return Applied{};
}

DraftOutcome DraftEngine::follow(const TargetKey& from,
                                 const wire::ProposeRecord& record,
                                 TimePoint now) {
  const auto at = attachments_.find({from, record.seq});
  if (at == attachments_.end() || at->second->lease < record.lease) {
    ++totals_.n_needs;  // the ATTACH of this lease was lost, or the attachment expired
    return wire::Need{.seq = record.seq, .lease = record.lease};
  }
  if (record.lease < at->second->lease || record.epoch < at->second->epoch) {
    ++totals_.n_ignored;
    return Ignored{};
  }
  return apply(*at->second, record, now);
}

wire::Need DraftEngine::need(const Attachment& attachment, NeedReason reason) {
  ++totals_.n_needs;
  return {.seq = attachment.key.seq,
          .lease = attachment.lease,
          .known = attachment.known,
          .prefix = attachment.prefix,
          .reason = reason};
}

wire::DraftBusy DraftEngine::busy(const Attachment& attachment, Duration retry_after) {
  return {.seq = attachment.key.seq,
          .lease = attachment.lease,
          .retry_after_us = short_micros(retry_after)};
}

// Nothing changes unless the whole record fits what is known.
DraftOutcome DraftEngine::apply(Attachment& attachment,
                                const wire::ProposeRecord& record,
                                TimePoint now) {
  const std::span<const TokenId> tail(record.tail);
  attachment.heard = now;
  if (record.from > attachment.known) return need(attachment, NeedReason::kGap);
  const std::size_t n_old = std::min<std::size_t>(attachment.known - record.from, tail.size());
  if (!attachment.is_outgrown &&
      !std::equal(tail.begin(), tail.begin() + static_cast<std::ptrdiff_t>(n_old),
                  attachment.tokens.begin() + static_cast<std::ptrdiff_t>(record.from)))
    return need(attachment, NeedReason::kMismatch);
  const std::span<const TokenId> committed = tail.subspan(n_old);
  const bool reaches_known = record.from + tail.size() >= attachment.known;
  const bool is_sound = std::all_of(committed.begin(), committed.end(),
                                    [&](TokenId t) { return t >= 0 && t < n_ids_; });
  if (!is_sound ||
      (reaches_known && prefix_hash_extend(attachment.prefix, committed) != record.prefix))
    return need(attachment, NeedReason::kMismatch);

  if (attachment.owes_answer && attachment.has_guessed && record.epoch > attachment.epoch)
    attachment.overtaken = attachment.epoch;
  attachment.epoch = std::max(attachment.epoch, record.epoch);
  attachment.is_stuck = false;
  if (!committed.empty()) take_in(attachment, committed);
  attachment.prefix = reaches_known ? record.prefix : attachment.prefix;
  if (now < attachment.busy_until && record.budget > 0) {
    ++totals_.n_busy;
    return busy(attachment, attachment.busy_until - now);
  }
  if (!reaches_known) return Applied{};  // overtaken by a later one, whose budget stands
  attachment.budget = std::min(record.budget, options_.max_ahead);
  attachment.owes_answer = record.budget > 0;
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

void DraftEngine::detach(const TargetKey& from, const wire::CloseSequence& close) {
  const auto at = attachments_.find({from, close.seq});
  if (at != attachments_.end() && at->second->lease <= close.lease) forget(at);
}

void DraftEngine::detach_all(WorkerId target, Incarnation except) {
  for (auto at = attachments_.lower_bound({.target = {.target = target}});
       at != attachments_.end() && at->first.target.target == target;) {
    const auto next = std::next(at);
    if (at->first.target.incarnation != except) forget(at);
    at = next;
  }
}

void DraftEngine::renew(const TargetKey& target, TimePoint now) {
  for (auto at = attachments_.lower_bound({.target = target});
       at != attachments_.end() && at->first.target == target; ++at)
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
