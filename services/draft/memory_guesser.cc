#include "services/draft/memory_guesser.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/base/log.h"
#include "common/base/majority_walk.h"
#include "common/base/micros.h"
#include "common/spec/prefix_hash.h"

namespace foretoken {
namespace {

constexpr std::size_t kTakenInAtOnce = 2048;  // tokens of a step: half a millisecond
// Salts of tenants are odd, and 0 is no tenant (services/router/request_running.cc): no even number
// is one.
constexpr TenantSalt kAllTenants = 2;
constexpr TenantSalt kFirstOwn = 4;

// 1 us to 10 ms.
constexpr std::array kLookupBounds{1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4,
                                   2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2};

bool is_of_this_sharing(TenantSalt salt, MemorySharing sharing) {
  if (sharing == MemorySharing::kAll) return salt == kAllTenants;
  return sharing == MemorySharing::kTenant && salt != kAllTenants;
}

}  // namespace

MemoryGuesser::MemoryGuesser(const MemoryGuesserOptions& options)
    : options_(options), memories_(options.memories), lookups_(kLookupBounds) {}

// Documents of one tenant stand together: when another's begin they are closed, so that none keeps
// its tenant's places for good.
Result<LogReport> MemoryGuesser::keep_in(Result<LogFolder> folder) {
  if (options_.sharing == MemorySharing::kOff) return LogReport{};
  if (!folder.ok()) {
    ++n_log_errors_;
    return std::move(folder).error();
  }
  std::map<std::uint64_t, TenantMemories::Document> open;
  TenantSalt last = 0;
  const auto close_all = [&] {
    for (auto& [document, text] : open) memories_.close(text);
    open.clear();
  };
  auto report = folder->read_back([&](TenantSalt salt, const LogRecord& record) {
    if (!is_of_this_sharing(salt, options_.sharing)) return;
    if (salt != last) close_all();
    last = salt;
    auto at = open.find(record.document);
    if (at == open.end()) at = open.emplace(record.document, memories_.open(salt)).first;
    memories_.append(at->second, record.tokens);
    if (!record.tokens.empty()) return;
    memories_.close(at->second);
    open.erase(at);
  });
  close_all();
  if (!report.ok()) {
    ++n_log_errors_;
    return report;
  }
  n_log_errors_ += report->n_damaged;
  log_ = std::make_unique<LogWriter>(std::move(*folder));
  return report;
}

// ---- sequences come, follow and go

TenantSalt MemoryGuesser::salt_of(const wire::Attach& attach) const {
  switch (options_.sharing) {
    case MemorySharing::kTenant:
      return attach.tenant_salt;
    case MemorySharing::kAll:
      return kAllTenants;
    case MemorySharing::kOff:
      break;
  }
  return kFirstOwn + 2 * n_documents_;
}

bool MemoryGuesser::are_tokens(std::span<const TokenId> tokens) const {
  return std::all_of(tokens.begin(), tokens.end(),
                     [&](TokenId t) { return t >= 0 && t < options_.n_ids; });
}

DraftOutcome MemoryGuesser::attach(const TargetKey& from, wire::Attach attach, TimePoint now) {
  const SequenceKey key{from, attach.seq};
  const auto at = sequences_.find(key);
  if (at == sequences_.end()) return attach_anew(key, attach, now);
  Followed& sequence = at->second;
  if (attach.lease < sequence.lease) {
    ++totals_.n_ignored;
    return Ignored{};
  }
  if (attach.tenant_salt != sequence.tenant) {  // never one tenant's tokens in another's memory
    forget(at);
    return attach_anew(key, attach, now);
  }
  // The same text goes on, under whatever lease: it is one document.
  if (attach.lease > sequence.lease) {
    sequence.lease = attach.lease;
    sequence.epoch = {};
  }
  const wire::ProposeRecord record{.seq = attach.seq,
                                   .lease = attach.lease,
                                   .epoch = sequence.epoch,
                                   .from = 0,
                                   .tail = attach.tokens,
                                   .prefix = attach.prefix,
                                   .budget = attach.budget};
  const DraftOutcome outcome = apply(key, sequence, record, now);
  if (!std::holds_alternative<wire::Need>(outcome)) return outcome;
  forget(at);
  return attach_anew(key, attach, now);
}

DraftOutcome MemoryGuesser::attach_anew(const SequenceKey& key,
                                        wire::Attach& attach,
                                        TimePoint now) {
  if (!are_tokens(attach.tokens)) {
    ++totals_.n_ignored;
    return Ignored{};
  }
  if (prefix_hash_extend(attach.root, attach.tokens) != attach.prefix) {
    ++totals_.n_needs;
    return mismatch_of(attach);
  }
  if (is_full()) expire(now);
  if (is_full()) {
    ++totals_.n_busy;
    return busy_with(attach, options_.retry_after);
  }
  Followed& sequence = sequences_[key];
  sequence.lease = attach.lease;
  sequence.tenant = attach.tenant_salt;
  const TenantSalt salt = salt_of(attach);
  sequence.text = std::make_shared<Text>(Text{.salt = salt,
                                              .document = options_.first_document + n_documents_++,
                                              .written = memories_.open(salt)});
  take_in(sequence, attach.tokens);
  sequence.prefix = attach.prefix;
  sequence.asked = renewed_[key.target] = now;
  set_budget(key, sequence, attach.budget);
  return Applied{};
}

DraftOutcome MemoryGuesser::follow(const TargetKey& from,
                                   const wire::ProposeRecord& record,
                                   TimePoint now) {
  const SequenceKey key{from, record.seq};
  const auto at = sequences_.find(key);
  if (at == sequences_.end() || at->second.lease < record.lease) {
    ++totals_.n_needs;
    return wire::Need{.seq = record.seq, .lease = record.lease};
  }
  if (record.lease < at->second.lease || record.epoch < at->second.epoch) {
    ++totals_.n_ignored;
    return Ignored{};
  }
  return apply(key, at->second, record, now);
}

// Nothing changes unless the whole record fits what is known.
DraftOutcome MemoryGuesser::apply(const SequenceKey& key,
                                  Followed& sequence,
                                  const wire::ProposeRecord& record,
                                  TimePoint now) {
  const auto need = [&](NeedReason reason) {
    ++totals_.n_needs;
    return wire::Need{.seq = key.seq,
                      .lease = sequence.lease,
                      .known = sequence.known,
                      .prefix = sequence.prefix,
                      .reason = reason};
  };
  renewed_[key.target] = now;
  if (record.from > sequence.known) return need(NeedReason::kGap);
  const std::span<const TokenId> tail(record.tail);
  const std::size_t n_old = std::min<std::size_t>(sequence.known - record.from, tail.size());
  const std::span<const TokenId> committed = tail.subspan(n_old);
  const bool reaches_known = record.from + tail.size() >= sequence.known;
  if (!are_tokens(committed) ||
      (reaches_known && prefix_hash_extend(sequence.prefix, committed) != record.prefix))
    return need(NeedReason::kMismatch);
  sequence.epoch = std::max(sequence.epoch, record.epoch);
  if (!reaches_known) return Applied{};  // overtaken by a later one
  take_in(sequence, committed);
  sequence.prefix = record.prefix;
  sequence.asked = now;
  set_budget(key, sequence, record.budget);
  return Applied{};
}

// An answer that is due and no longer asked for is not made.
void MemoryGuesser::set_budget(const SequenceKey& key, Followed& sequence, std::uint32_t budget) {
  sequence.budget = budget;
  const bool owed_before = std::exchange(sequence.owes_answer, budget > 0);
  if (budget > 0 && !owed_before) due_.push_back(key);
  if (budget == 0 && owed_before) std::erase(due_, key);
}

// CLOSE has the tokens of the last round, which were in no PROPOSE.
void MemoryGuesser::detach(const TargetKey& from, const wire::CloseSequence& close) {
  const auto at = sequences_.find({from, close.seq});
  if (at == sequences_.end() || at->second.lease > close.lease) return;
  Followed& sequence = at->second;
  const std::span<const TokenId> tail(close.tail);
  if (close.from <= sequence.known && close.from + tail.size() > sequence.known) {
    const auto rest = tail.subspan(sequence.known - close.from);
    if (are_tokens(rest)) take_in(sequence, rest);
  }
  forget(at);
}

void MemoryGuesser::detach_all(WorkerId target, Incarnation except) {
  for (auto at = sequences_.lower_bound({.target = {.target = target}});
       at != sequences_.end() && at->first.target.target == target;) {
    const auto next = std::next(at);
    if (at->first.target.incarnation != except) forget(at);
    at = next;
  }
  std::erase_if(renewed_, [&](const auto& renewed) {
    return renewed.first.target == target && renewed.first.incarnation != except;
  });
}

void MemoryGuesser::renew(const TargetKey& target, TimePoint now) {
  expire(now);
  if (const auto at = renewed_.find(target); at != renewed_.end()) at->second = now;
}

// What waits is taken in by parts like all else, but serves no one where each has its own text.
void MemoryGuesser::forget(Sequences::iterator at) {
  Text& text = *at->second.text;
  text.is_closed = true;
  if (options_.sharing == MemorySharing::kOff) text.waiting.clear();
  if (text.waiting.empty())
    finish(text);
  else
    ++n_closed_;
  if (at->second.owes_answer) std::erase(due_, at->first);
  sequences_.erase(at);
}

// Texts that wait without a sequence count, so that what waits has a bound.
bool MemoryGuesser::is_full() const {
  return sequences_.size() + n_closed_ >= options_.max_sequences;
}

void MemoryGuesser::expire(TimePoint now) {
  for (auto target = renewed_.begin(); target != renewed_.end();) {
    if (target->second + options_.lease > now) {
      ++target;
      continue;
    }
    for (auto at = sequences_.lower_bound({.target = target->first});
         at != sequences_.end() && at->first.target == target->first;) {
      ++totals_.n_expired;
      forget(at++);
    }
    target = renewed_.erase(target);
  }
}

// ---- into the memory

void MemoryGuesser::take_in(Followed& sequence, std::span<const TokenId> committed) {
  sequence.known += static_cast<Position>(committed.size());
  auto& last = sequence.last;
  last.insert(last.end(),
              committed.end() -
                  static_cast<std::ptrdiff_t>(std::min(committed.size(), TokenMemory::kMaxMatch)),
              committed.end());
  if (last.size() > TokenMemory::kMaxMatch)
    last.erase(last.begin(), last.end() - static_cast<std::ptrdiff_t>(TokenMemory::kMaxMatch));
  Text& text = *sequence.text;
  if (text.waiting.empty() && committed.size() <= TokenMemory::kChunk)
    return write(text, committed);
  if (text.waiting.empty()) backlog_.push_back(sequence.text);
  text.waiting.insert(text.waiting.end(), committed.begin(), committed.end());
}

void MemoryGuesser::write(Text& text, std::span<const TokenId> tokens) {
  if (tokens.empty()) return;
  memories_.append(text.written, tokens);
  if (log_) log_->append(text.salt, {.document = text.document, .tokens = tokens});
}

void MemoryGuesser::finish(Text& text) {
  memories_.close(text.written);
  if (options_.sharing == MemorySharing::kOff) memories_.forget(text.salt);
  if (log_) log_->append(text.salt, {.document = text.document, .tokens = {}});
}

// A part of each text in turn, so that a long prompt does not delay the others.
void MemoryGuesser::work_off_backlog() {
  if (backlog_.empty()) return;
  const std::shared_ptr<Text> text = std::move(backlog_.front());
  backlog_.pop_front();
  if (text->waiting.empty()) return;  // closed, and of no use
  const auto rest = std::span<const TokenId>(text->waiting).subspan(text->n_taken);
  const auto part = rest.first(std::min(rest.size(), kTakenInAtOnce));
  write(*text, part);
  text->n_taken += part.size();
  if (part.size() < rest.size()) return backlog_.push_back(text);
  text->waiting = {};
  text->n_taken = 0;
  if (!text->is_closed) return;
  finish(*text);
  --n_closed_;
}

// ---- answers

const DraftOutput& MemoryGuesser::step(TimePoint now) {
  output_.proposals.clear();
  output_.n_drafted = 0;
  expire(now);
  for (const SequenceKey& key : due_) {
    Followed& sequence = sequences_.at(key);
    answer(key, sequence);
    sequence.owes_answer = false;
  }
  due_.clear();
  work_off_backlog();
  return output_;
}

// The budget is the limit of the chain; a runner-up ends no deeper.
void MemoryGuesser::answer(const SequenceKey& key, Followed& sequence) {
  RecallRules rules = options_.rules;
  rules.max_len = std::min(rules.max_len, sequence.budget);
  const TimePoint begin = options_.clock();
  memories_.recall(sequence.text->salt, sequence.last, rules, found_);
  lookups_.observe(options_.clock() - begin);
  n_hits_ += found_.n_chain > 0;
  output_.proposals.push_back(
      {.to = key.target, .record = proposal_of(key, sequence), .asked = sequence.asked});
  output_.n_drafted += static_cast<std::uint32_t>(found_.tokens.size());
  totals_.n_drafted += found_.tokens.size();
}

// Empty where nothing was found: there is nothing to wait for.
wire::ProposalRecord MemoryGuesser::proposal_of(const SequenceKey& key,
                                                const Followed& sequence) const {
  wire::ProposalRecord record{.seq = key.seq,
                              .lease = sequence.lease,
                              .epoch = sequence.epoch,
                              .base = sequence.known,
                              .prefix = sequence.prefix,
                              .tokens = found_.tokens,
                              .known = sequence.known};
  if (found_.tokens.size() > found_.n_chain) record.parents = found_.parents;
  record.confidence.reserve(found_.shares.size());
  for (const float share : found_.shares)
    record.confidence.push_back(lookup_confidence(found_.match, share));
  return record;
}

// ---- what is seen of it

DraftSnapshot MemoryGuesser::snapshot() const {
  DraftSnapshot now = totals_;
  now.n_attached = static_cast<std::uint32_t>(sequences_.size());
  now.n_behind = static_cast<std::uint32_t>(due_.size() + backlog_.size());
  return now;
}

void MemoryGuesser::check(TimePoint) {
  if (!log_ || was_log_off_) return;
  const std::string why = log_->why_off();
  if (why.empty()) return;
  was_log_off_ = true;
  ++n_log_errors_;
  log_warning("texts are not kept for the next start any more (memory.folder)", {{"reason", why}});
}

void MemoryGuesser::list_metrics(Metrics& metrics) const {
  const TenantMemoriesStats stats = memories_.stats();
  metrics.gauge("memory_tokens", stats.n_tokens, {{"state", "used"}});
  metrics.gauge("memory_tokens",
                options_.memories.n_places - std::min(options_.memories.n_places, stats.n_places),
                {{"state", "free"}});
  metrics.gauge("memory_tenants", stats.n_tenants);
  metrics.histogram("memory_lookup_seconds", lookups_);
  metrics.counter("memory_hits_total", n_hits_);
  metrics.counter("memory_evicted_tokens_total", stats.n_evicted);
  metrics.counter("memory_dropped_tokens_total", stats.n_dropped);
  metrics.counter("memory_log_errors_total", n_log_errors_);
}

}  // namespace foretoken
