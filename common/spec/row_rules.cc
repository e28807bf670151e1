#include "common/spec/row_rules.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/spec/finish.h"

namespace foretoken {
namespace {

// What a request may ask for, an op can give.
static_assert(std::int64_t{kMaxLogprobs} <= kMaxTopLogprobs);
constexpr float kMasked = -std::numeric_limits<float>::infinity();

bool is_nothing(const Adjustment& adjustment) {
  return adjustment.repetition == 1.0f && adjustment.add == 0.0f;
}

std::vector<Adjustment>::iterator place_of(std::vector<Adjustment>& sorted, TokenId id) {
  return std::lower_bound(sorted.begin(), sorted.end(), id,
                          [](const Adjustment& a, TokenId b) { return a.id < b; });
}

// Sets or replaces one entry.
void put(std::vector<Adjustment>& sorted, const Adjustment& adjustment) {
  const auto at = place_of(sorted, adjustment.id);
  if (at != sorted.end() && at->id == adjustment.id) {
    *at = adjustment;
  } else {
    sorted.insert(at, adjustment);
  }
}

// `changes` win over `base`; entries that adjust nothing are left out. Both sorted by id.
void append_merged(std::span<const Adjustment> base,
                   std::span<const Adjustment> changes,
                   std::vector<Adjustment>& out) {
  auto at = base.begin();
  for (const Adjustment& change : changes) {
    const auto next = std::lower_bound(at, base.end(), change.id,
                                       [](const Adjustment& a, TokenId b) { return a.id < b; });
    out.insert(out.end(), at, next);
    at = next;
    if (at != base.end() && at->id == change.id) ++at;
    if (!is_nothing(change)) out.push_back(change);
  }
  out.insert(out.end(), at, base.end());
}

}  // namespace

bool is_allowed(std::span<const std::uint32_t> mask, TokenId id) {
  const auto at = static_cast<std::uint32_t>(id);
  return at / 32 < mask.size() && (mask[at / 32] >> (at % 32) & 1) != 0;
}

RowRules::RowRules(const SamplingParams& params,
                   std::span<const TokenId> eos_ids,
                   std::span<const TokenId> prompt,
                   std::optional<Constraint> constraint)
    : params_(params),
      has_penalties_(params.repetition_penalty != 1.0f || params.presence_penalty != 0.0f ||
                     params.frequency_penalty != 0.0f),
      constraint_(std::move(constraint)),
      endings_(ending_tokens(params, eos_ids)),
      n_prompt_(static_cast<Position>(prompt.size())) {
  for (const auto& [id, bias] : params.logit_bias) bias_[id] += bias;
  for (const auto& word : params.bad_words) {
    if (word.size() == 1) bias_[word[0]] = kMasked;
    if (word.size() > 1) bad_words_.push_back(word);
  }
  // Only the repetition penalty looks at the prompt; without it the prompt need not be remembered.
  if (params.repetition_penalty != 1.0f)
    for (const TokenId id : prompt) counts_[id].seen = true;
  std::vector<TokenId> ids;
  for (const auto& [id, counts] : counts_) ids.push_back(id);
  for (const auto& [id, bias] : bias_) ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  for (const TokenId id : ids) {
    const Adjustment entry = adjustment(id, counts_of(id));
    if (!is_nothing(entry)) base_.push_back(entry);
  }
}

RowRules::Counts RowRules::counts_of(TokenId id) const {
  const auto found = counts_.find(id);
  return found == counts_.end() ? Counts{} : found->second;
}

// A function of the id and its counts alone, so that proposed and committed tokens come to the same
// bits.
Adjustment RowRules::adjustment(TokenId id, const Counts& counts) const {
  Adjustment out{.id = id};
  if (counts.seen) out.repetition = params_.repetition_penalty;
  const auto bias = bias_.find(id);
  double add = bias == bias_.end() ? 0.0 : static_cast<double>(bias->second);
  if (counts.n_output > 0)
    add -= static_cast<double>(params_.presence_penalty) +
           static_cast<double>(params_.frequency_penalty) * static_cast<double>(counts.n_output);
  out.add = static_cast<float>(add);
  return out;
}

void RowRules::store(const Adjustment& adjustment) {
  if (!is_nothing(adjustment)) {
    put(base_, adjustment);
    return;
  }
  const auto at = place_of(base_, adjustment.id);
  if (at != base_.end() && at->id == adjustment.id) base_.erase(at);
}

void RowRules::commit(TokenId token) {
  ++n_output_;
  if (constraint_) constraint_->take(token);
  if (has_penalties_) {
    Counts& counts = counts_[token];
    counts.seen = true;
    ++counts.n_output;
    store(adjustment(token, counts));
  }
  if (bad_words_.empty()) return;
  recent_.push_back(token);
  if (recent_.size() >= kMaxBadWordTokens) recent_.erase(recent_.begin());
}

// What differs from base_ in the row after `drafted`: counts of proposed tokens, then masks.
std::vector<Adjustment> RowRules::changes(std::span<const TokenId> drafted) const {
  std::vector<Adjustment> out;
  if (has_penalties_) {
    for (const TokenId id : drafted) {
      Counts counts = counts_of(id);
      counts.seen = true;
      counts.n_output += static_cast<std::uint32_t>(std::count(drafted.begin(), drafted.end(), id));
      put(out, adjustment(id, counts));
    }
  }
  if (n_output_ + drafted.size() < params_.min_tokens)
    for (const TokenId id : endings_) put(out, {.id = id, .repetition = 1, .add = kMasked});
  if (bad_words_.empty()) return out;
  std::vector<TokenId> tail = recent_;
  tail.insert(tail.end(), drafted.begin(), drafted.end());
  for (const auto& word : bad_words_) {
    const std::size_t n =
        word.size() - 1;  // all but the last: if these were just said, the last must not follow
    if (n <= tail.size() &&
        std::equal(tail.end() - static_cast<std::ptrdiff_t>(n), tail.end(), word.begin()))
      put(out, {.id = word.back(), .repetition = 1, .add = kMasked});
  }
  return out;
}

bool RowRules::is_ending(TokenId token) const {
  return std::binary_search(endings_.begin(), endings_.end(), token);
}

std::size_t RowRules::n_allowed(std::span<const PathToken> path) const {
  if (!constraint_) return path.size();
  Constraint place = *constraint_;
  for (std::size_t n = 0; n < path.size(); ++n) {
    const TokenId token = path[n].token;
    if (is_ending(token)) return place.may_end() ? n + 1 : n;
    if (!is_allowed(place.allowed(), token)) return n;
    place.take(token);
  }
  return path.size();
}

// An end token may follow where the text before it may end, and only there: what text it has is not
// part of the answer.
void RowRules::append_mask(const Constraint& place, std::vector<std::uint32_t>& masks) const {
  const auto begin = masks.size();
  const auto allowed = place.allowed();
  masks.insert(masks.end(), allowed.begin(), allowed.end());
  const bool may_end = place.may_end();
  for (const TokenId id : endings_) {
    std::uint32_t& word = masks[begin + static_cast<std::size_t>(id) / 32];
    const std::uint32_t bit = 1u << (static_cast<std::uint32_t>(id) % 32);
    word = may_end ? word | bit : word & ~bit;
  }
}

void RowRules::append_rows(std::span<const TokenId> drafted,
                           std::size_t first_row,
                           const RowRuleLists& out) const {
  std::optional<Constraint> place = constraint_;
  if (place)
    for (const TokenId token : drafted.first(first_row)) place->take(token);
  std::vector<Adjustment> before;
  const auto same = [](const Adjustment& a, const Adjustment& b) {
    return a.id == b.id && a.repetition == b.repetition && a.add == b.add;
  };
  for (std::size_t k = first_row; k <= drafted.size(); ++k) {
    std::vector<Adjustment> now = changes(drafted.first(k));
    RowRule rule{.temperature = params_.temperature,
                 .top_k = static_cast<std::int32_t>(std::min<std::uint32_t>(
                     params_.top_k, std::numeric_limits<std::int32_t>::max())),
                 .top_p = params_.top_p,
                 .min_p = params_.min_p,
                 .seed = params_.seed,
                 .choice = params_.choice,
                 .position = position() + static_cast<Position>(k),
                 .n_top_logprobs = params_.n_logprobs};
    if (k > first_row && std::equal(now.begin(), now.end(), before.begin(), before.end(), same)) {
      rule.adjust_begin = out.rules.back().adjust_begin;
      rule.adjust_end = out.rules.back().adjust_end;
    } else {
      rule.adjust_begin = static_cast<std::int32_t>(out.adjustments.size());
      append_merged(base_, now, out.adjustments);
      rule.adjust_end = static_cast<std::int32_t>(out.adjustments.size());
    }
    if (place) {
      rule.mask_begin = static_cast<std::int32_t>(out.masks.size());
      append_mask(*place, out.masks);
      if (k < drafted.size()) place->take(drafted[k]);
    }
    out.rules.push_back(rule);
    before = std::move(now);
  }
}

}  // namespace foretoken
