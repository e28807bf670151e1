#include "common/engine/draft_engine.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "common/base/check.h"
#include "common/model/config.h"
#include "common/spec/finish.h"
#include "common/spec/prefix_hash.h"

namespace foretoken {
namespace {

// An attachment nobody wants guesses from is brought up to date only when that fills a pass of some
// size: the rows cost little together, and a draft that shares its cores with the target should be
// quiet when it is not wanted.
constexpr std::uint32_t kIdleCatchUp = 32;
// More than this many tokens behind is a prompt, and goes through in chunks.
constexpr std::uint32_t kFewBehind = 64;

std::uint8_t confidence_byte(float logprob) {
  const float p = std::exp(logprob);
  return static_cast<std::uint8_t>(std::lround(255.0f * std::clamp(p, 0.0f, 1.0f)));
}

SamplingParams with_logprob(SamplingParams params) {
  params.n_logprobs = 0;  // its own logarithm is the confidence
  return params;
}

}  // namespace

struct DraftEngine::Attachment {
  Attachment(AttachRequest& request, std::span<const TokenId> eos_ids)
      : key(request.key),
        lease(request.lease),
        tenant_salt(request.tenant_salt),
        endings(ending_tokens(request.params, eos_ids)),
        rules(with_logprob(request.params),
              eos_ids,
              std::span(request.tokens).first(request.n_prompt)),
        tokens(std::move(request.tokens)),
        known(static_cast<std::uint32_t>(tokens.size())),
        prefix(request.prefix) {
    for (std::uint32_t i = request.n_prompt; i < known; ++i) rules.commit(tokens[i]);
  }

  std::uint32_t n_chain() const {
    return is_outgrown ? 0 : static_cast<std::uint32_t>(tokens.size()) - known;
  }
  std::span<const TokenId> chain() const {
    return is_outgrown ? std::span<const TokenId>{} : std::span(tokens).subspan(known);
  }

  DraftKey key;
  Lease lease{};
  Epoch epoch{};
  SeqId cache_name{};
  bool has_cache = false;
  bool is_outgrown = false;  // beyond the longest context: silent from here on
  bool is_fresh = true;  // never had blocks: its prompt is prefilled before anything is asked
  std::uint64_t tenant_salt = 0;
  std::vector<TokenId> endings;           // sorted
  RowRules rules;                         // of the committed tokens
  std::vector<TokenId> tokens;            // committed, then the own chain; none when outgrown
  std::uint32_t known = 0;                // how many are committed
  PrefixHash prefix = 0;                  // of those
  std::vector<std::uint8_t> confidences;  // [n_chain()]
  std::uint32_t budget = 0;               // chain length wanted
  bool owes_answer = false;
  bool has_guessed = false;        // since it last answered
  std::optional<Epoch> overtaken;  // a record whose answer was not complete when the next one came
  bool is_stuck = false;           // no token may follow: until the next record
  std::optional<ExpectRequest> expected;  // until the next record, or an early step
  std::optional<Position> told;    // where the chain has a token that its target chose
  std::uint32_t n_emitted = 0;     // chain length last sent
  std::uint64_t turn = 0;          // when it last had rows
  TimePoint heard{};
  TimePoint busy_until{};
};

DraftEngine::DraftEngine(Model& model, Backend& backend, const DraftEngineOptions& options)
    : options_(options),
      eos_ids_(model.config().eos_token_ids),
      kv_(options.kv),
      step_(model, backend, kv_, options.n_valid_ids) {
  const auto model_limit = static_cast<Position>(model.config().max_model_len);
  max_len_ =
      options.max_model_len == 0 ? model_limit : std::min(options.max_model_len, model_limit);
  n_ids_ = options.n_valid_ids > 0 ? options.n_valid_ids : model.config().vocab_size;
  options_.max_batch_rows = std::min(options_.max_batch_rows, model.max_rows());
  if (options_.max_sequences < 1 || options_.max_batch_rows < 1)
    throw FatalError(ErrorCode::kConfig,
                     "draft.max_sequences and limits.max_batch_rows must be at least 1");
  options_.prefill_chunk = std::clamp(options_.prefill_chunk, 1, options_.max_batch_rows);
  if (options_.max_chained == 0)
    options_.max_chained = backend.gains_by_recording() ? options_.max_ahead : 1;
  // Ranks choose on the host, so there they are asked step by step.
  may_chain_ =
      options_.max_chained > 1 && model.ranks() == nullptr && options_.emission == Emission::kWhole;
  may_expect_ = model.ranks() == nullptr && options_.emission == Emission::kWhole;
}

DraftEngine::~DraftEngine() = default;

// ---- what targets say ----

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
                       .reason = DraftNeed::kMismatch};
  }
  if (attachments_.size() >= static_cast<std::size_t>(options_.max_sequences)) {
    expire(now);
    if (attachments_.size() >= static_cast<std::size_t>(options_.max_sequences)) {
      ++totals_.n_busy;
      return BusyOutcome{request.key, request.lease, options_.retry_after};
    }
  }
  ++totals_.n_attaches;
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

NeedOutcome DraftEngine::need(const Attachment& attachment, DraftNeed reason) {
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
  if (request.from > attachment.known) return need(attachment, DraftNeed::kGap);
  const std::size_t n_old =
      std::min<std::size_t>(attachment.known - request.from, request.tail.size());
  if (!attachment.is_outgrown &&
      !std::equal(request.tail.begin(), request.tail.begin() + static_cast<std::ptrdiff_t>(n_old),
                  attachment.tokens.begin() + static_cast<std::ptrdiff_t>(request.from)))
    return need(attachment, DraftNeed::kMismatch);
  const std::span<const TokenId> committed = request.tail.subspan(n_old);
  const bool reaches_known = request.from + request.tail.size() >= attachment.known;
  const bool is_sound = std::all_of(committed.begin(), committed.end(),
                                    [&](TokenId t) { return t >= 0 && t < n_ids_; });
  if (!is_sound ||
      (reaches_known && prefix_hash_extend(attachment.prefix, committed) != request.prefix))
    return need(attachment, DraftNeed::kMismatch);

  ++totals_.n_follows;
  attachment.expected.reset();
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
  attachment.n_emitted = 0;
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
  if (attachment.told && *attachment.told < attachment.known + n_agreed) {
    --totals_.n_kept;  // the target's own
    attachment.told.reset();
  }
  if (n_agreed == committed.size()) {
    attachment.confidences.erase(attachment.confidences.begin(),
                                 attachment.confidences.begin() + n_agreed);
  } else {
    totals_.n_cut += chain.size() - n_agreed;
    attachment.told.reset();
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

bool DraftEngine::expect(const ExpectRequest& request) {
  const auto at = attachments_.find(request.key);
  if (at == attachments_.end() || !may_expect_) return false;
  Attachment& a = *at->second;
  // All of the chain: of a longer one the rest may stand as well, and would be guessed again.
  const bool is_ours = a.lease == request.lease && a.known == request.base &&
                       a.prefix == request.prefix && request.n_drafted == a.n_chain() &&
                       prefix_hash_extend(a.prefix, a.chain()) == request.drafted;
  const auto board = request.board.lock();
  const bool is_possible = board != nullptr && request.entry >= 0 &&
                           request.entry < board->n_entries() && request.budget > 0 &&
                           a.has_cache && a.rules.is_steady() &&
                           a.known + request.n_drafted + 1 < max_len_;
  if (!is_ours || !is_possible) return false;
  a.expected = request;
  a.expected->budget = std::min(request.budget, options_.max_ahead);
  return true;
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
  attachment.expected.reset();
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

// ---- guessing ----

bool DraftEngine::can_grow(const Attachment& attachment) const {
  if (attachment.is_stuck || attachment.is_outgrown || attachment.n_chain() >= attachment.budget ||
      attachment.tokens.size() >= max_len_)
    return false;
  const auto& endings = attachment.endings;
  const bool has_ended =
      attachment.n_chain() > 0 &&
      std::binary_search(endings.begin(), endings.end(), attachment.tokens.back());
  return !has_ended;
}

std::uint32_t DraftEngine::n_pending(const Attachment& attachment) const {
  const Position n_cached = attachment.has_cache ? kv_.length(attachment.cache_name) : 0;
  return static_cast<std::uint32_t>(attachment.tokens.size()) - n_cached;
}

bool DraftEngine::wants_rows(const Attachment& attachment) const {
  if (can_grow(attachment)) return true;
  if (attachment.budget > 0 || attachment.is_outgrown) return false;
  return (attachment.has_cache || attachment.is_fresh) && n_pending(attachment) > kIdleCatchUp;
}

bool DraftEngine::has_work() const {
  return std::any_of(attachments_.begin(), attachments_.end(), [&](const auto& entry) {
    return entry.second->owes_answer || wants_rows(*entry.second) || entry.second->expected;
  });
}

const DraftOutput& DraftEngine::step(TimePoint now) {
  output_.proposals.clear();
  output_.busy.clear();
  output_.n_rows = output_.n_steps = output_.n_drafted = 0;
  output_.has_waited = false;
  expire(now);
  if (emit_overtaken()) return output_;  // these have waited a whole round
  fill_step(now);
  std::shared_ptr<BoardView> board;
  if (step_.n_slices() == 0 && !has_answer()) board = fill_early_step();
  if (step_.n_slices() > 0) {
    step_.run(board.get());
    output_.has_waited = board != nullptr;
    for (std::size_t i = 0; i < in_step_.size(); ++i)
      board == nullptr ? extend(*in_step_[i], i) : extend_early(*in_step_[i], i);
    output_.n_rows = static_cast<std::uint32_t>(step_.plan().tokens.size());
    output_.n_steps = 1 + step_.plan().n_ahead;
    output_.n_rows += step_.plan().n_ahead * static_cast<std::uint32_t>(step_.n_slices());
    totals_.n_steps += output_.n_steps;
    totals_.n_rows += output_.n_rows;
    totals_.n_drafted += output_.n_drafted;
  }
  step_.begin();
  emit_ready();
  return output_;
}

// How many more guesses it wants and may make.
std::uint32_t DraftEngine::n_wanted(const Attachment& attachment) const {
  if (!can_grow(attachment)) return 0;
  return std::min(attachment.budget - attachment.n_chain(),
                  max_len_ - static_cast<Position>(attachment.tokens.size()));
}

// Steps that may follow the next one without the host: until the first of all has its guesses, so
// that nobody waits for another's. None where a prompt is to be read, where a rule looks at the
// tokens that were chosen (penalties and bad words of several tokens are counted by the host), and
// where rows or blocks are scarce.
std::uint32_t DraftEngine::n_chainable() const {
  if (!may_chain_ || order_.empty()) return 0;
  std::uint32_t n_steps = options_.max_chained;
  std::size_t n_rows = 0;
  for (const Attachment* attachment : order_) {
    const bool is_ready = attachment->has_cache && can_grow(*attachment) &&
                          n_pending(*attachment) <= kFewBehind &&
                          !attachment->rules.looks_at_tokens();
    if (!is_ready) return 0;
    n_steps = std::min(n_steps, n_wanted(*attachment));
    n_rows += n_pending(*attachment);
  }
  if (n_rows > static_cast<std::size_t>(options_.max_batch_rows)) return 0;
  std::int64_t n_blocks = 0;
  for (const Attachment* attachment : order_)
    n_blocks += kv_.blocks_needed(attachment->cache_name, n_pending(*attachment) + n_steps - 1);
  return n_blocks <= kv_.free_blocks() ? n_steps - 1 : 0;
}

// Whoever has waited longest goes first, so that nobody starves however small a pass is.
void DraftEngine::fill_step(TimePoint now) {
  in_step_.clear();
  order_.clear();
  for (const auto& [key, attachment] : attachments_)
    if (wants_rows(*attachment)) order_.push_back(attachment.get());
  step_.begin(n_chainable());
  std::sort(order_.begin(), order_.end(),
            [](const Attachment* a, const Attachment* b) { return a->turn < b->turn; });
  auto rows_left = static_cast<std::uint32_t>(options_.max_batch_rows);
  auto chunk_left = static_cast<std::uint32_t>(options_.prefill_chunk);
  for (Attachment* attachment : order_) {
    if (!wants_rows(*attachment)) continue;  // lost its blocks to one before it
    if (!attachment->has_cache) {
      const auto hit =
          kv_.open(attachment->cache_name, attachment->tokens, attachment->tenant_salt);
      FORETOKEN_CHECK(hit.ok());
      attachment->has_cache = true;
      attachment->is_fresh = false;
    }
    // The last token is fed only with a choice to be made: its row gives the next guess.
    const std::uint32_t n_missing = n_pending(*attachment) - (can_grow(*attachment) ? 0 : 1);
    const bool is_prompt = n_missing > kFewBehind;
    const std::uint32_t n_rows =
        std::min({n_missing, rows_left, is_prompt ? chunk_left : rows_left});
    if (n_rows == 0) continue;
    bool added = add_slice(*attachment, n_rows);
    while (!added && take_blocks_from_another(*attachment, now))
      added = add_slice(*attachment, n_rows);
    if (!added) {
      set_busy(*attachment, now);
      continue;
    }
    attachment->turn = ++n_turns_;
    in_step_.push_back(attachment);
    rows_left -= n_rows;
    if (is_prompt) chunk_left -= n_rows;
  }
}

bool DraftEngine::add_slice(Attachment& attachment, std::uint32_t n_rows) {
  const Position start = kv_.length(attachment.cache_name);
  const bool chooses = start + n_rows == attachment.tokens.size() && can_grow(attachment);
  return step_
      .add({.seq = attachment.cache_name,
            .known = std::span<const TokenId>(attachment.tokens).subspan(start, n_rows),
            .rules = chooses ? &attachment.rules : nullptr,
            .guessed = chooses ? attachment.chain() : std::span<const TokenId>{},
            .endings = attachment.endings})
      .ok();
}

// Idle attachments lose their blocks first, then younger ones than the beneficiary; never those in
// this step.
bool DraftEngine::take_blocks_from_another(const Attachment& beneficiary, TimePoint now) {
  Attachment* victim = nullptr;
  for (const auto& [key, attachment] : attachments_) {
    Attachment* candidate = attachment.get();
    if (!candidate->has_cache || candidate == &beneficiary ||
        kv_.length(candidate->cache_name) == 0 ||
        std::find(in_step_.begin(), in_step_.end(), candidate) != in_step_.end())
      continue;
    const bool is_idle = !wants_rows(*candidate);
    if (!is_idle && candidate->cache_name < beneficiary.cache_name) continue;
    const bool is_better =
        victim == nullptr || (is_idle && wants_rows(*victim)) ||
        (is_idle == !wants_rows(*victim) && candidate->cache_name > victim->cache_name);
    if (is_better) victim = candidate;
  }
  if (victim == nullptr) return false;
  if (wants_rows(*victim)) {
    set_busy(*victim, now);
  } else {
    drop_cache(*victim);  // its tokens stay: it is computed again when it is wanted again
  }
  return true;
}

void DraftEngine::set_busy(Attachment& attachment, TimePoint now) {
  drop_cache(attachment);
  attachment.budget = 0;
  attachment.owes_answer = false;
  attachment.busy_until = now + options_.retry_after;
  ++totals_.n_busy;
  output_.busy.push_back({attachment.key, attachment.lease, options_.retry_after});
}

void DraftEngine::extend(Attachment& attachment, std::size_t slice) {
  const PlanSlice& plan = step_.plan().slices[slice];
  if (plan.n_choices == 0) {
    attachment.is_stuck = false;
    return step_.commit(slice, plan.n_known);
  }
  const std::uint32_t n_fed = append_choices(attachment, slice, plan.n_known);
  step_.commit(slice, std::span<const TokenId>(attachment.tokens).subspan(plan.start, n_fed));
}

// The choices after the n_fed tokens that its rows were given. Returns how many it was given then.
std::uint32_t DraftEngine::append_choices(Attachment& attachment,
                                          std::size_t slice,
                                          std::uint32_t n_fed) {
  for (std::uint32_t k = 0;; ++k, ++n_fed) {
    const Choice& choice = step_.chained(slice, k);
    attachment.is_stuck = choice.token < 0;
    if (attachment.is_stuck) return n_fed - 1;  // its row is asked again when something has changed
    attachment.tokens.push_back(choice.token);
    attachment.confidences.push_back(confidence_byte(choice.logprob));
    attachment.has_guessed = true;
    ++output_.n_drafted;
    if (k == step_.plan().n_ahead || !can_grow(attachment)) return n_fed;
  }
}

// ---- guessing before the verdict is known ----

bool DraftEngine::has_answer() const {
  return std::any_of(attachments_.begin(), attachments_.end(), [&](const auto& entry) {
    return entry.second->owes_answer && !can_grow(*entry.second);
  });
}

// A step that waits for the board of a target, if nobody else could come to want one meanwhile: all
// attachments are that target's. The board, or null: nothing is expected, or it cannot be done.
std::shared_ptr<BoardView> DraftEngine::fill_early_step() {
  order_.clear();
  std::shared_ptr<BoardView> board;
  const DraftKey* target = nullptr;
  bool is_one_target = true;
  std::uint32_t n_steps = options_.max_chained;
  std::int64_t n_rows = 0;
  for (const auto& [key, attachment] : attachments_) {
    if (target == nullptr) target = &key;
    is_one_target = is_one_target && key.target == target->target &&
                    key.incarnation == target->incarnation;
    if (!attachment->expected) continue;
    const ExpectRequest& e = *attachment->expected;
    const auto its_board = e.board.lock();
    if (its_board == nullptr) attachment->expected.reset();  // gone with its link or its target
    if (board == nullptr) board = its_board;
    if (its_board == nullptr || its_board != board) continue;
    order_.push_back(attachment.get());
    n_steps = std::min({n_steps, e.budget, max_len_ - (attachment->known + e.n_drafted + 1)});
    n_rows += attachment->known - std::min(kv_.length(attachment->cache_name), attachment->known) +
              e.n_drafted + 1;
  }
  if (board == nullptr) return nullptr;
  step_.begin(n_steps - 1);
  for (Attachment* attachment : order_) {
    if (is_one_target && n_rows <= options_.max_batch_rows) add_early_slice(*attachment);
    if (in_step_.empty() || in_step_.back() != attachment) attachment->expected.reset();
  }
  return in_step_.empty() ? nullptr : board;
}

// The drafted tokens are fed once more: they are in one pass with the token after them, cost next to
// nothing there, and so the step is a transaction like any other, whatever the verdict will be.
void DraftEngine::add_early_slice(Attachment& attachment) {
  const ExpectRequest& e = *attachment.expected;
  const Position start = std::min(kv_.length(attachment.cache_name), attachment.known);
  kv_.truncate(attachment.cache_name, start);
  const auto rows = std::span<const TokenId>(attachment.tokens)
                        .subspan(start, attachment.known - start + e.n_drafted);
  fed_.assign(rows.begin(), rows.end());
  fed_.push_back(0);
  const bool added =
      step_
          .add({.seq = attachment.cache_name,
                .known = fed_,
                .rules = &attachment.rules,
                .guessed = std::span<const TokenId>(fed_).last(1),
                .endings = attachment.endings,
                .take = PlanTake{.entry = e.entry, .n_drafted = e.n_drafted, .tag = e.tag}})
          .ok();
  if (!added) return;
  ++totals_.n_expected;
  attachment.turn = ++n_turns_;
  in_step_.push_back(&attachment);
}

// What the verdict confirmed stays, what it cut goes, its own token follows; then the guesses.
void DraftEngine::extend_early(Attachment& attachment, std::size_t slice) {
  const ExpectRequest expected = *std::exchange(attachment.expected, std::nullopt);
  const Verdict verdict = step_.taken(slice);
  if (verdict.n_accepted < 0) return;  // overtaken, or nothing that could be a verdict
  ++totals_.n_taken;
  const auto n_accepted = static_cast<std::uint32_t>(verdict.n_accepted);
  totals_.n_cut += attachment.n_chain() - n_accepted;
  attachment.tokens.resize(attachment.known + n_accepted);
  attachment.confidences.resize(n_accepted);
  attachment.told = static_cast<Position>(attachment.tokens.size());
  attachment.tokens.push_back(verdict.next_token);
  attachment.confidences.push_back(255);
  attachment.is_stuck = false;
  attachment.budget = n_accepted + 1 + expected.budget;
  const Position start = step_.plan().slices[slice].start;
  auto n_fed = static_cast<std::uint32_t>(attachment.tokens.size()) - start;
  // A last token whose choice is not wanted counts as not fed: it will be, with a choice to be made.
  n_fed = can_grow(attachment) ? append_choices(attachment, slice, n_fed) : n_fed - 1;
  step_.commit(slice, std::span<const TokenId>(attachment.tokens).subspan(start, n_fed));
}

// A record that came before the chain was complete: the target has taken its step without. It is
// told how far the chain is nevertheless, or a draft that is slower than its target would seem
// dead.
bool DraftEngine::emit_overtaken() {
  for (const auto& [key, attachment] : attachments_) {
    if (!attachment->overtaken) continue;
    emit(*attachment, *attachment->overtaken);
    attachment->overtaken.reset();
  }
  return !output_.proposals.empty();
}

void DraftEngine::emit_ready() {
  for (const auto& [key, attachment] : attachments_) {
    Attachment& a = *attachment;
    if (!a.owes_answer) continue;
    const bool is_complete = !can_grow(a);
    const bool has_grown = a.n_chain() > a.n_emitted;
    if (!is_complete && !(options_.emission == Emission::kEachStep && has_grown)) continue;
    emit(a, a.epoch);
    a.n_emitted = a.n_chain();
    a.owes_answer = !is_complete;
  }
}

void DraftEngine::emit(Attachment& attachment, Epoch epoch) {
  const auto chain = attachment.chain();
  attachment.has_guessed = false;
  output_.proposals.push_back({.key = attachment.key,
                               .lease = attachment.lease,
                               .epoch = epoch,
                               .base = attachment.known,
                               .prefix = attachment.prefix,
                               .tokens = {chain.begin(), chain.end()},
                               .confidences = attachment.confidences});
}

DraftSnapshot DraftEngine::snapshot() const {
  DraftSnapshot snapshot = totals_;
  snapshot.n_attached = static_cast<std::uint32_t>(attachments_.size());
  for (const auto& [key, attachment] : attachments_) {
    if (wants_rows(*attachment)) ++snapshot.n_behind;
    snapshot.n_remembered += attachment->tokens.size();
  }
  snapshot.kv = kv_.stats();
  return snapshot;
}

}  // namespace foretoken
